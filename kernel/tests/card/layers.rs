//! Layers of one shape through one loaded kernel: each has scales, rows or metadata of its own. Every result is
//! compared with the emulator's, bit by bit. And what is captured into graphs.

use collective::sparse::{self, compress};
use collective::{BlockScales, F8E4M3, Format, GroupScales};
use cute_rs::atom::Major;
use half::bf16;
use kernel::driver::{Chooser, DeviceSlice, Enqueue, GemmDesc, Loaded, Stream};
use kernel::{AnyGemm, Buffer, Call, Emulator, Engine, EngineError, GemmProblem, Gpu, KernelSpec, MatrixRef};

use crate::skipped::skipped;

/// Two layers of one shape.
struct Layers {
    what: &'static str,
    spec: &'static str,
    /// The call, given the addresses of the buffers.
    call: fn(usize, &[u64]) -> Call,
    /// What each layer's buffers hold. D is not among them.
    buffers: [Vec<Vec<u8>>; 2],
    /// Bytes of D.
    d: usize,
}

/// Pseudo-random numbers below a limit, the same for the same seed.
fn random(count: u32, limit: u32, seed: u32) -> impl Iterator<Item = u32> {
    let mut state = seed;
    (0..count).map(move |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) % limit
    })
}

/// Integers from -2 to 2.
fn halves(count: u32, seed: u32) -> Vec<u8> {
    random(count, 5, seed).flat_map(|value| bf16::from_f32(value as f32 - 2.0).to_le_bytes()).collect()
}

/// The same in `e4m3`.
fn bytes(count: u32, seed: u32) -> Vec<u8> {
    random(count, 5, seed).map(|value| F8E4M3::from_f32(value as f32 - 2.0).to_bits()).collect()
}

/// Powers of two.
fn powers(count: u32, seed: u32) -> impl Iterator<Item = f32> {
    random(count, 4, seed).map(|value| (value as f32).exp2())
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn floats(values: impl Iterator<Item = f32>) -> Vec<u8> {
    values.flat_map(f32::to_le_bytes).collect()
}

fn narrow(values: impl Iterator<Item = f32>) -> Vec<u8> {
    values.flat_map(|value| bf16::from_f32(value).to_le_bytes()).collect()
}

/// A matrix of which two of four neighbours are zero, compressed: what is kept, and the metadata.
fn compressed(places: [u32; 2]) -> Vec<Vec<u8>> {
    let mut kept =
        random(128 * 64, 4, 5).map(|value| u32::from(bf16::from_f32(value as f32 + 1.0).to_bits()));
    let all = (0..128 * 128).map(|i| if places.contains(&(i % 4)) { kept.next().expect("half") } else { 0 });
    let compressed = compress(Format::Bf16, [128, 128], &all.collect::<Vec<_>>()).expect("half are zero");
    let values = compressed.values.iter().flat_map(|&bits| (bits as u16).to_le_bytes()).collect();
    vec![values, halves(128 * 128, 6), words(&compressed.metadata)]
}

fn all() -> [Layers; 5] {
    let weights = |seed| {
        let codes = random(128 * 128, 256, 3).map(|byte| byte as u8).collect();
        vec![halves(16 * 256, 1), codes, narrow(powers(2 * 128, seed))]
    };
    let blocks = |seed| {
        let (a, b) = (floats(powers(2 * 128, seed)), floats(powers(4, seed + 1)));
        vec![bytes(128 * 256, 1), bytes(128 * 256, 2), a, b]
    };
    let masked = |rows: [u32; 2]| vec![halves(256 * 256, 1), halves(2 * 128 * 256, 2), words(&rows)];
    [
        Layers {
            what: "scales of groups of weights",
            spec: "weights-b=s4 group=128 swap=yes tile=128x16x128",
            call: |_, at| {
                let problem = GemmProblem { m: 16, n: 128, k: 256 };
                let call = Call::of(problem).a(at[0], 256).b(at[1], 256).d(at[3], 128);
                let (scales, zeros) = (MatrixRef::new(at[2], 128), MatrixRef::NONE);
                call.group_scaled(GroupScales { scales, zeros })
            },
            buffers: [7, 8].map(weights),
            d: 16 * 128 * 2,
        },
        Layers {
            what: "metadata of a sparse operand",
            spec: "sparse=a tile=128x128x64",
            call: |_, at| {
                let problem = GemmProblem { m: 128, n: 128, k: 128 };
                let call = Call::of(problem).a(at[0], 64).b(at[1], 128).d(at[3], 128);
                let ld = sparse::metadata_ld(Format::Bf16, 128);
                call.sparse(MatrixRef::new(at[2], ld))
            },
            buffers: [[0, 1], [1, 3]].map(compressed),
            d: 128 * 128 * 2,
        },
        Layers {
            what: "block scales",
            spec: "dtype=e4m3 scale-a=1x128 scale-b=128x128 tile=128x128x128",
            call: |_, at| {
                let problem = GemmProblem { m: 128, n: 128, k: 256 };
                let call = Call::of(problem).a(at[0], 256).b(at[1], 256).d(at[4], 128);
                call.scaled(BlockScales { a: MatrixRef::new(at[2], 128), b: MatrixRef::new(at[3], 4) })
            },
            buffers: [7, 9].map(blocks),
            d: 128 * 128 * 2,
        },
        Layers {
            what: "numbers of rows of masked groups",
            spec: "form=masked tile=128x128x64",
            call: |_, at| {
                let problem = GemmProblem { m: 256, n: 128, k: 256 };
                let call = Call::of(problem).a(at[0], 256).b(at[1], 256).d(at[3], 128);
                call.masked(2, 128, at[2])
            },
            buffers: [[100, 20], [33, 128]].map(masked),
            d: 256 * 128 * 2,
        },
        Layers {
            what: "room of masked groups",
            spec: "form=masked tile=128x128x64",
            call: |layer, at| {
                let problem = GemmProblem { m: 256, n: 128, k: 256 };
                let call = Call::of(problem).a(at[0], 256).b(at[1], 256).d(at[3], 128);
                call.masked(2, [128, 64][layer], at[2])
            },
            buffers: [[100, 20], [100, 20]].map(masked),
            d: 256 * 128 * 2,
        },
    ]
}

impl Layers {
    fn kernel(&self) -> AnyGemm {
        let spec = self.spec.parse::<KernelSpec>().unwrap_or_else(|error| panic!("{}: {error}", self.what));
        spec.kernel().unwrap_or_else(|error| panic!("{}: {error}", self.what))
    }

    /// A layer's buffers on an engine, with D last and poisoned.
    fn upload(&self, engine: &mut dyn Engine, layer: usize) -> Result<Vec<Buffer>, EngineError> {
        let d = vec![0x55; self.d];
        self.buffers[layer].iter().chain([&d]).map(|bytes| engine.upload(bytes)).collect()
    }

    fn call(&self, layer: usize, buffers: &[Buffer]) -> Call {
        (self.call)(layer, &buffers.iter().map(|buffer| buffer.address).collect::<Vec<_>>())
    }

    /// A layer's D in the emulator.
    fn emulated(&self, layer: usize) -> Result<Vec<u8>, EngineError> {
        let (mut engine, gemm) = (Emulator::new().with_multiprocessors(2), self.kernel());
        let program = gemm.program().expect("legal");
        let (resident, buffers) = (engine.resident_clusters(&program)?, self.upload(&mut engine, layer)?);
        let call = self.call(layer, &buffers);
        let workspace = engine.workspace(gemm.workspace(&call, resident))?;
        let launch = gemm.launch(&Call { workspace, ..call }, resident);
        let launch = launch.unwrap_or_else(|error| panic!("{}: {error}", self.what)).expect("not empty");
        engine.launch(&program, launch.grid, &launch.arguments)?;
        engine.read(buffers[buffers.len() - 1])
    }
}

/// The second of two layers of one shape is not launched with what the first one reads.
#[test]
fn layers_of_one_shape_have_their_own_scales_rows_and_metadata() -> Result<(), EngineError> {
    let mut gpu = Gpu::new(0).ok();
    if gpu.is_none() {
        skipped("GPU");
    }
    for layers in all() {
        let what = layers.what;
        let want = [layers.emulated(0)?, layers.emulated(1)?];
        assert_ne!(want[0], want[1], "{what}: the layers differ");
        let Some(gpu) = &mut gpu else { continue };
        let gemm = layers.kernel();
        let program = gemm.program().expect("legal");
        let loaded = Loaded::load_in(gpu.context(), gemm, program)?;
        let buffers = [layers.upload(gpu, 0)?, layers.upload(gpu, 1)?];
        for layer in [0, 1, 0, 1] {
            let of_layer = &buffers[layer];
            let d = of_layer[of_layer.len() - 1];
            gpu.write(d, &vec![0x55; layers.d])?;
            let call = layers.call(layer, of_layer);
            let workspace = gpu.workspace(loaded.kernel().workspace(&call, loaded.resident_clusters()))?;
            let lent = of_layer.iter().copied().chain(workspace);
            let lent = lent.map(|buffer| gpu.memory(buffer)).collect::<Result<Vec<_>, _>>()?;
            let lent: Vec<_> = lent.iter().map(DeviceSlice::from).collect();
            loaded.launch(gpu.stream(), &Call { workspace, ..call }, &lent)?;
            assert!(gpu.read(d)? == want[layer], "{what}: layer {layer} is not the emulator's");
        }
    }
    Ok(())
}

/// Something to be captured.
struct Captured<'a>(&'a dyn Fn(&Stream) -> Result<(), EngineError>);

impl Enqueue for Captured<'_> {
    fn name(&self) -> &str {
        "captured"
    }

    fn enqueue(&self, stream: &Stream) -> Result<(), EngineError> {
        (self.0)(stream)
    }
}

/// Launches of a loaded kernel and of a chooser are captured, and replayed with new data. Both the shape that
/// was prepared and, for the loaded kernel, a new one.
#[test]
fn warm_shapes_are_captured() -> Result<(), EngineError> {
    let Ok(mut gpu) = Gpu::new(0) else {
        skipped("GPU");
        return Ok(());
    };
    let problem = GemmProblem { m: 64, n: 64, k: 64 };
    let filled = |value: f32| bf16::from_f32(value).to_le_bytes().repeat(64 * 64);
    let (a, b) = (gpu.upload(&filled(1.0))?, gpu.upload(&filled(1.0))?);
    let [known, new, chosen] =
        [gpu.upload(&filled(0.0))?, gpu.upload(&filled(0.0))?, gpu.upload(&filled(0.0))?];
    let gemm = kernel::find("64x64-direct-bf16-kk").expect("a catalogue name");
    let program = gemm.program().expect("legal");
    let loaded = Loaded::load_in(gpu.context(), gemm, program)?;
    let call = Call::of(problem).a(a.address, 64).b(b.address, 64).d(known.address, 64);
    let other = Call { problem: GemmProblem { m: 32, ..problem }, ..call.d(new.address, 64) };
    loaded.prepare(gpu.stream(), &call)?;
    let chooser = Chooser::new(gpu.context())?;
    let what = GemmDesc::new(Format::Bf16, [Major::K; 2], problem);
    let memory = [a, b, known, new, chosen].map(|buffer| gpu.memory(buffer).expect("allocated"));
    let lent = memory.each_ref().map(DeviceSlice::from);
    let slices = [lent[0], lent[1], lent[4]];
    let choose = |stream: &Stream| chooser.enqueue(stream, &what, slices);
    let error = gpu.capture(&[&Captured(&choose)]).expect_err("nothing is chosen yet").to_string();
    assert!(error.contains("call `prepare`"), "{error}");
    chooser.prepare(gpu.stream(), &what, slices)?;
    let launch = |stream: &Stream| {
        loaded.launch(stream, &call, &lent)?;
        loaded.launch(stream, &other, &lent)
    };
    let graph = gpu.capture(&[&Captured(&launch), &Captured(&choose)])?;
    assert!(gpu.read(known)? == filled(0.0) && gpu.read(chosen)? == filled(0.0), "nothing has run");
    drop((loaded, chooser));
    for value in [1.0, 3.0] {
        gpu.write(a, &filled(value))?;
        let stream = gpu.stream().clone();
        graph.enqueue(&stream)?;
        let sums = filled(64.0 * value);
        assert!(gpu.read(known)? == sums && gpu.read(chosen)? == sums, "of {value}");
        assert!(gpu.read(new)?[..64 * 64] == sums[..64 * 64], "of {value}");
    }
    Ok(())
}

/// The context that is current in this thread; 0 if there is none.
#[allow(unsafe_code, reason = "asks CUDA's driver")]
fn current() -> usize {
    let mut context = 0;
    // SAFETY: it is CUDA's driver, whose function has this type and writes one handle.
    unsafe {
        let cuda = libloading::Library::new("libcuda.so.1").expect("there is a GPU");
        let ask = cuda.get::<unsafe extern "C" fn(*mut usize) -> i32>(b"cuCtxGetCurrent");
        assert_eq!(ask.expect("every driver has it")(&mut context), 0);
    }
    context
}

/// Arguments are laid out, and kernels launched, in a thread where no context is current, as it stays.
#[allow(unsafe_code, reason = "launches with plain addresses")]
#[test]
fn no_context_need_be_current() -> Result<(), EngineError> {
    let Ok(mut gpu) = Gpu::new(0) else {
        skipped("GPU");
        return Ok(());
    };
    let ones = bf16::ONE.to_le_bytes().repeat(64 * 64);
    let (operand, d) = (gpu.upload(&ones)?, gpu.allocate(ones.len())?);
    let gemm = kernel::find("64x64-direct-bf16-kk").expect("a catalogue name");
    let program = gemm.program().expect("legal");
    let call = Call::of(GemmProblem { m: 64, n: 64, k: 64 });
    let call = call.a(operand.address, 64).b(operand.address, 64).d(d.address, 64);
    let loaded = Loaded::load_in(gpu.context(), gemm, program)?;
    std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            // SAFETY: the addresses are those of buffers of the GPU, and null is the default stream.
            let launched = unsafe { loaded.launch_raw(core::ptr::null_mut(), &call) };
            assert_eq!(current(), 0, "a context is left behind");
            launched
        });
        run.join().expect("no panic")
    })?;
    // Freeing waits for all that runs.
    let other = gpu.allocate(1)?;
    gpu.free(other)?;
    assert!(gpu.read(d)? == bf16::from_f32(64.0).to_le_bytes().repeat(64 * 64));
    Ok(())
}
