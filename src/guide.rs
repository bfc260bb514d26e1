//! Write your epilogue: from a formula to a verified kernel on a machine without a GPU, and then on the card.
//!
//! # 1. The formula
//!
//! Say D is to be `softcap(scale * acc + bias)`, with `softcap(x) = c * tanh(x / c)`, one factor `scale` for each row
//! and one `bias` for each column. What the library does not have is `softcap`: a function of one number with one
//! argument. It is written once, over [`Real`](collective::Real) numbers.
//!
//! ```
//! use falchion::collective::{Pointwise, Real, evaluate, evaluate_bounded, Bounded};
//!
//! struct Softcap;
//! impl Pointwise for Softcap {
//!     type Arguments = f32;
//!     const ARGUMENTS: &'static [&'static str] = &["c"];
//!     fn name() -> String {
//!         "softcap".into()
//!     }
//!     fn apply<R: Real>(c: R, [x]: [R; 1]) -> R {
//!         c * (x / c).tanh()
//!     }
//! }
//!
//! // On the host it is an ordinary function ...
//! assert_eq!(evaluate::<Softcap, 1>(30.0, [0.0]), 0.0);
//! // ... and one that knows how far a kernel may be off.
//! assert!(evaluate_bounded::<Softcap, 1>(30.0, [Bounded::exact(45.0)]).error < 1e-5);
//! ```
//!
//! # 2. The tree
//!
//! [`collective::tree`] has leaves for everything that is read, [`Compute`](collective::tree::Compute) for functions, and
//! nodes that write something beside D. A tree is a type; its arguments follow from it. Names make both readable:
//!
//! ```
//! # use falchion::collective::{Pointwise, Real};
//! # struct Softcap;
//! # impl Pointwise for Softcap {
//! #     type Arguments = f32;
//! #     fn name() -> String { "softcap".into() }
//! #     fn apply<R: Real>(c: R, [x]: [R; 1]) -> R { c * (x / c).tanh() }
//! # }
//! use falchion::collective::functions::MultiplyAdd;
//! use falchion::collective::tree::*;
//! use falchion::collective::{epilogue, labels};
//! use falchion::prelude::*;
//!
//! labels! {
//!     ScaleOfRow = "scale";
//!     BiasOfColumn = "bias";
//! }
//!
//! /// What a caller hands over.
//! #[derive(Clone, Copy, Debug)]
//! struct CappedArguments {
//!     cap: f32,
//!     scale: ColumnArgument,
//!     bias: RowArgument,
//! }
//!
//! type Scaled<T> =
//!     Compute<MultiplyAdd, (Accumulator, Named<ScaleOfRow, ColumnVector<T>>, Named<BiasOfColumn, RowVector<T>>)>;
//!
//! epilogue! {
//!     /// `softcap(scale * acc + bias)`.
//!     struct Capped<T>: Compute<Softcap, (Scaled<T>,)>;
//!     // A function's arguments come before those of its operands.
//!     arguments CappedArguments, |a| (a.cap, (((), ((), a.scale, a.bias)),));
//! }
//! # fn main() {}
//! ```
//!
//! # 3. The kernel, checked
//!
//! A tree becomes an epilogue by [`TreeEpilogue`](collective::TreeEpilogue), which any mainloop and scheduler takes. A
//! [`Bench`](crate::verify::Bench) runs the kernel on random matrices and evaluates the same tree, from the same arguments,
//! in f64 on the host. Every element of D must lie within the derived bound; memory beside D must stay as it was.
//!
//! ```
//! # use falchion::collective::{Pointwise, Real};
//! # struct Softcap;
//! # impl Pointwise for Softcap {
//! #     type Arguments = f32;
//! #     fn name() -> String { "softcap".into() }
//! #     fn apply<R: Real>(c: R, [x]: [R; 1]) -> R { c * (x / c).tanh() }
//! # }
//! # use falchion::collective::functions::MultiplyAdd;
//! # use falchion::collective::tree::*;
//! # use falchion::collective::{epilogue, labels};
//! # use falchion::prelude::*;
//! # labels! { ScaleOfRow = "scale"; BiasOfColumn = "bias"; }
//! # #[derive(Clone, Copy, Debug)]
//! # struct CappedArguments { cap: f32, scale: ColumnArgument, bias: RowArgument }
//! # type Scaled<T> =
//! #     Compute<MultiplyAdd, (Accumulator, Named<ScaleOfRow, ColumnVector<T>>, Named<BiasOfColumn, RowVector<T>>)>;
//! # epilogue! {
//! #     /// `softcap(scale * acc + bias)`.
//! #     struct Capped<T>: Compute<Softcap, (Scaled<T>,)>;
//! #     arguments CappedArguments, |a| (a.cap, (((), ((), a.scale, a.bias)),));
//! # }
//! use falchion::verify::{Bench, Format};
//!
//! type MyGemm = Composed<
//!     TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U64, U64>, Cooperative<U1>>,
//!     TreeEpilogue<bf16, TmaStore, Capped<bf16>>,
//!     Persistent<Grouped<AlongM, U8>>,
//! >;
//! const PLAN: Plan = Gemm::<MyGemm>::PLAN; // a Bound without its Let, a wrong tile: they stop the build here
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (m, n) = (70, 72); // not whole tiles: edges are where epilogues go wrong
//! let mut engine = Emulator::new();
//! let mut bench = Bench::new(&mut engine, 1);
//! let arguments = CappedArguments {
//!     cap: 5.0,
//!     scale: ColumnArgument { address: bench.random(Format::Bf16, m, 0)?, len: m },
//!     bias: RowArgument { address: bench.random(Format::Bf16, n, 1)?, len: n },
//! };
//! let checked = bench.check::<MyGemm>(GemmProblem { m, n, k: 64 }, &arguments)?;
//! assert_eq!(checked.compared, 70 * 72);
//!
//! // What is wrong with an argument is said by its name.
//! let short = CappedArguments { bias: RowArgument { len: 71, ..arguments.bias }, ..arguments };
//! let error = bench.check::<MyGemm>(GemmProblem { m, n, k: 64 }, &short).unwrap_err();
//! assert_eq!(error.to_string(), "bias has 71 elements, 72 were needed");
//! # Ok(())
//! # }
//! ```
//!
//! # 4. Column-major results
//!
//! A column-major D is the row-major transpose `D^T = B^T A^T`: hand B over in the place of A and A in the place of B, as
//! they lie, and read the tree with rows and columns exchanged. A bias of D's columns is then one of the kernel's rows, a
//! [`ColumnVector`](collective::tree::ColumnVector). Nothing is transposed in memory, and every store will do.
//!
//! ```
//! use falchion::collective::functions::Add;
//! use falchion::collective::tree::{Accumulator, ColumnArgument, ColumnVector, Compute};
//! use falchion::prelude::*;
//! use falchion::verify::{Bench, Format};
//!
//! /// For a column-major D (M x N) with row-major A (M x K) and column-major B (K x N): the kernel's A is B^T, N x K.
//! type Columns = Composed<
//!     TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U32, U64>, Cooperative<U1>>,
//!     TreeEpilogue<bf16, TmaStore, Compute<Add, (Accumulator, ColumnVector<bf16>)>>,
//!     OneTile<AlongN>,
//! >;
//!
//! let (m, n, k) = (40, 70, 64);
//! let mut engine = Emulator::new();
//! let mut bench = Bench::new(&mut engine, 1);
//! let bias = ColumnArgument { address: bench.random(Format::Bf16, n, 0)?, len: n };
//! bench.check::<Columns>(GemmProblem { m: n, n: m, k }, &((), ((), bias)))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! For D of few rows there is another reason to exchange operands: a kernel with a
//! [`Transposed`](collective::Transposed) store computes `D^T` in tiles whose narrow side is along D's rows, and exchanges
//! everything back. Callers, and trees, notice nothing: nodes see D's rows and columns. Refused are gates, reductions in a
//! fixed order and `TopKSoftmax`, which look along the rows of a tile.
//!
//! # 5. Gates, masks, angles
//!
//! * [`Gated`](collective::tree::Gated) takes gates and ups that are [`Split`](collective::tree::Split), all gates in front of all
//!   ups: two matrices of weights behind each other, as they are stored. The mainloop brings half of a tile's columns from
//!   either half of B. Or they alternate, or lie in [`Blocks`](collective::tree::Blocks): 8 columns of gates, their 8 of
//!   ups, and so on; then B's columns are put in that order once, when weights are loaded.
//!   [`Gated::columns`](collective::tree::Gated::columns) says which two become column j.
//! * [`Dropout`](collective::tree::Dropout) needs no mask in memory: seed, row and column say what is left out, and
//!   [`DropoutArgument::keeps`](collective::tree::DropoutArgument::keeps) says so on the host.
//! * [`Rotate`](collective::tree::Rotate) turns pairs of neighbouring columns by the cosines and sines of another node.
//! * [`ReduceRow`](collective::tree::ReduceRow) and its like add up in an order of the hardware's;
//!   [`OrderedRow`](collective::tree::OrderedRow) and its like give the same bits in every run, for some scratch memory.
//!
//! # 6. On the card
//!
//! Nothing changes but the engine: `Gpu::new(0)?` in place of `Emulator::new()`. `Exact` functions give the same bits on
//! both; [`Fast`](collective::Fast) and [`Fastest`](collective::Fastest) ones use the hardware's approximations, and the
//! bound grows with them. For launches of your own, [`Gemm::launch`](kernel::Gemm::launch) takes a [`Call`](kernel::Call) with the
//! epilogue's arguments and returns grid and parameters; [`Loaded`](kernel::driver::Loaded) launches it on your stream.
//!
//! What makes an epilogue fast:
//!
//! * A [`TmaStore`](collective::TmaStore) where D's rows are whole 16 bytes: it goes on while the next tile is multiplied.
//! * Addresses and pitches that let pairs of elements be loaded at once. One odd vector sends all of the tile the slow way.
//! * [`Pingpong`](collective::Pingpong) for short reductions: one warpgroup's epilogue hides behind the other's products.
//! * [`Let`](collective::tree::Let) for a value that is used twice.
//!
//! `falchion bench --epilogue bias-gelu` measures what a fused epilogue costs: each kernel beside itself without it, and
//! beside cuBLASLt with its own fusion. `examples/bias_gelu.rs` does so for kernels of one's own.
