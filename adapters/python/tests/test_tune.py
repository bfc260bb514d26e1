"""Tuning, with a stand-in for CUDA's driver that runs nothing: what is measured is kept, and found by later processes."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import falchion
import pytest

STAND_IN = Path(__file__).resolve().parents[3] / "kernel/src/driver/stand_in/cuda.rs"


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    if shutil.which("rustc") is None or not STAND_IN.exists():
        pytest.skip("needs rustc and the source of the stand-in")
    folder = tmp_path_factory.mktemp("driver")
    build = ["rustc", "--edition=2024", "--crate-type=cdylib", "--crate-name=cuda", "-o", folder / "libcuda.so.1", STAND_IN]
    subprocess.run(build, check=True, capture_output=True)
    return folder


def run(driver, program):
    environment = dict(os.environ, LD_LIBRARY_PATH=str(driver), FALCHION_CACHE=str(driver / "cache"), STAND_IN_LOG=str(driver / "log"))
    result = subprocess.run([sys.executable, "-c", "import falchion\n" + program], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("epilogue", ["None", '"gelu(alpha*acc + bias[n]:f32)"', '"reduce_max(top[m], store(aux[m,n], ordered_sum(all[n], dropout(mask, acc))))"'])
def test_what_is_measured_is_kept(driver, epilogue):
    program = f'kernel = falchion.tune(512, 384, 256, epilogue={epilogue}, budget=3)\nprint(kernel.spec, kernel.reason, sep="\\n")'
    first = run(driver, program).splitlines()
    assert re.fullmatch(r"the fastest of [123] kernels that were measured", first[1]), first
    # The stand-in's times are all the same, so another one may be the fastest.
    assert run(driver, program).splitlines()[1] == "the fastest of those that were measured on this card"


def test_refusals():
    for words, keywords in [
        ('card is "h100", one of this machine was needed', {"card": "h100"}),
        ('types is "bf15"', {"types": "bf15"}),
        ('layout is "nn"', {"layout": "nn"}),
    ]:
        with pytest.raises(ValueError) as error:
            falchion.tune(64, 64, 64, **keywords)
        assert words in str(error.value)
