use cudarc::driver::{CudaSlice, CudaStream};

fn layer(
    stream: &std::sync::Arc<CudaStream>,
    [x, w]: [&CudaSlice<bf16>; 2],
    y: &mut CudaSlice<bf16>,
) -> Result<(), falchion::kernel::EngineError> {
    let gemm = Gemm::<MyGemm>::load(stream)?; // milliseconds: keep it
    gemm.multiply(stream, GemmProblem { m: 300, n: 200, k: 136 }, x, w, y)
}
