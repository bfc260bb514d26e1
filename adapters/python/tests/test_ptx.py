"""PTX that anybody wrote is checked from Python."""

import json

import falchion
import numpy as np
import pytest

COPY = """
.version 8.0
.target sm_90a
.address_size 64

.visible .entry copy(
    .param .u64 copy_x,
    .param .u64 copy_y
)
.reqntid 32, 1, 1
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [copy_x];
    ld.param.u64 %rd2, [copy_y];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.b32 %r2, [%rd4];
    st.global.b32 [%rd5], %r2;
    ret;
}
"""
X = np.arange(32, dtype=np.float32)


def launch(**changes):
    buffers = [
        {"name": "x", "element": "f32", "count": 32, "data": X, "unchanged": True},
        {"name": "y", "element": "f32", "count": 32, "want": {"data": X}},
    ]
    return {"grid": [1, 1, 1], "buffer": buffers, "argument": [{"buffer": "x"}, {"buffer": "y"}], **changes}


def test_a_kernel_that_is_right():
    report = falchion.check_ptx(COPY, launch(), schedules=3, seed=7)
    assert report.findings == [] and report.schedules == 7 and report.kernels == ["copy"]
    assert report.expect() is report and "0 errors" in repr(report)


def test_a_kernel_that_is_wrong(tmp_path):
    line = COPY.splitlines().index("    st.global.b32 [%rd5], %r2;") + 1
    wrong = COPY.replace("st.global.b32 [%rd5]", "st.global.b32 [%rd2]")
    report = falchion.check_ptx(wrong, launch(), schedules=1)
    (found,) = report.errors
    assert found["rule"] == "wrong-result" and found["severity"] == "error" and found["schedules"] == 5
    beyond = COPY.replace("[%rd5]", "[%rd5+4]")
    (found,) = falchion.check_ptx(beyond, launch(), schedules=1).errors
    assert (found["rule"], found["spot"]["line"]) == ("global-out-of-bounds", line)
    assert found["spot"]["text"] == "st.global.b32 [%rd5+4], %r2;"
    report = falchion.check_ptx(beyond, launch(), schedules=1, suppress=[f"global-out-of-bounds:{line}"])
    assert not report.errors and report.findings[0]["status"] == "suppressed"
    report.save_sarif(tmp_path / "found.sarif")
    assert json.loads((tmp_path / "found.sarif").read_text())["version"] == "2.1.0"


def test_files(tmp_path):
    (tmp_path / "copy.ptx").write_text(COPY)
    X.tofile(tmp_path / "x.bin")
    (tmp_path / "copy.launch.toml").write_text(
        """
        grid = [1, 1, 1]
        argument = [{ buffer = "x" }, { buffer = "y" }]
        [[buffer]]
        name = "x"
        element = "f32"
        count = 32
        file = "x.bin"
        [[buffer]]
        name = "y"
        element = "f32"
        count = 32
        want = { file = "x.bin" }
        """
    )
    assert not falchion.check_ptx(tmp_path / "copy.ptx", schedules=0).findings
    assert not falchion.check_ptx(str(tmp_path / "copy.ptx"), tmp_path / "copy.launch.toml", schedules=0).findings


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("launch was needed", lambda: falchion.check_ptx(COPY)),
        ("launch: unknown field `grids`", lambda: falchion.check_ptx(COPY, launch(grids=1))),
        ("kernel.ptx:20:", lambda: falchion.check_ptx(COPY.replace("ld.global.b32", "ld.nowhere.b32"), launch())),
        ("kernel.ptx: there is no kernel `x`", lambda: falchion.check_ptx(COPY, launch(entry="x"))),
        ("`copy` has 2 parameters, 1 arguments were given", lambda: falchion.check_ptx(COPY, launch(argument=[{"buffer": "x"}]))),
        ("schedules is -1", lambda: falchion.check_ptx(COPY, launch(), schedules=-1)),
        ("suppress: there is no rule `race`", lambda: falchion.check_ptx(COPY, launch(), suppress=["race"])),
    ],
)
def test_what_does_not_fit_is_a_value_error(words, call):
    with pytest.raises(ValueError) as error:
        call()
    assert str(error.value).startswith(words)


def test_the_self_test_of_compilers():
    report = falchion.check_compiler("emulator")
    assert report.wrong == [] and report.compiler is None and len(report.micros) >= 12
    assert "micro-kernels have wrong bits" in str(report) and repr(report).startswith("<CompilerReport: 0 of")
    with pytest.raises(ValueError, match='card is "cuda"'):
        falchion.check_compiler("cuda")
