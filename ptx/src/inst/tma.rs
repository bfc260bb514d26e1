//! L2 cache policies of tensor copies and bulk copies, for their `hint`.
//!
//! ```
//! # let entry = ptx::Entry { name: "example".into(), target: ptx::Target::Sm90a, threads: 128, shared_bytes: 4096, cluster: [1, 1, 1] };
//! use ptx::inst::tma::EVICT_FIRST;
//!
//! let function = ptx::Function::build(entry, |f| {
//!     let (map, shared) = (f.tensor_map("weights"), f.shared_base());
//!     let (dst, barrier) = (shared, shared + 2048);
//!     f.if_(f.special(ptx::Special::ThreadX).equals(0), || {
//!         f.mbarrier_init(barrier, 1);
//!         f.mbarrier_arrive_expect(barrier, 1024);
//!         // The data is read once.
//!         let load = ptx::TensorLoad { map, dst, barrier, multicast: None, hint: Some(EVICT_FIRST) };
//!         f.tensor_load(load, [0, 0].map(|coordinate: i32| f.constant(coordinate)));
//!     });
//! });
//! let text = ptx::module_text(&function.verify()?);
//! assert!(text.contains(".L2::cache_hint"));
//! # Ok::<(), ptx::VerifyError>(())
//! ```

/// Evict-first for all accesses: for data that is read once. The value that
/// `createpolicy.fractional.L2::evict_first` makes.
pub const EVICT_FIRST: u64 = 0x12F0_0000_0000_0000;
/// Evict-last for all accesses: for data that is read again.
pub const EVICT_LAST: u64 = 0x14F0_0000_0000_0000;
/// L2's default policy.
pub const EVICT_NORMAL: u64 = 0x1000_0000_0000_0000;
