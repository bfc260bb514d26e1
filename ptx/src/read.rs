//! Reads PTX: anybody's text becomes a typed program, which can be verified, executed and printed again.
//!
//! Use it for kernels that other compilers made: those of `nvcc` (CUTLASS, DeepGEMM), Triton, CuTe DSL (FlashAttention, QuACK) and Pallas
//! for `sm_90a`. A [`Module`] is a text; [`Module::entry`] makes the [`Function`] of one of its kernels, in the flat form: labels and
//! branches. Its registers keep their names, and each statement knows its line in the text, and the line that it was compiled from
//! (`.loc`).
//!
//! # What the program is
//!
//! * It does what the text does. Instructions that [`Inst`](crate::Inst) does not have become several that do the same.
//! * Hints are left out: cache operators, eviction priorities, prefetches, for how long `mbarrier.try_wait` waits, `.pragma`,
//!   `.minnctapersm`. `createpolicy` gives the policy that is known for it, or else L2's default.
//! * `add.f32`, `mul.f32` and the like without a rounding are to nearest. An assembler may also contract a product and a sum.
//! * A loop that asks an mbarrier until a phase is over is one [`MbarrierWait`](crate::Inst::MbarrierWait).
//! * A call of a function of the text is its body, with registers of its own. `vprintf` evaluates its arguments, prints nothing, and its
//!   result is 0. `__assertfail` is a trap. Other functions of elsewhere, calls of addresses, and recursion are refused.
//! * Variables in global and constant memory are hidden parameters: [`Function::variables`](crate::Function::variables).
//!
//! # What is refused
//!
//! Whatever is not known: nothing of an instruction is passed over in silence. The error names the place in the text, what was found there
//! and what was needed. Not read are textures and surfaces, `multimem`, arithmetic with carries, video instructions, and whatever Hopper
//! does not have.
//!
//! ```
//! use ptx::read::{Launch, Module};
//!
//! let text = "
//! .version 8.0
//! .target sm_90a
//! .address_size 64
//! .visible .entry scale(.param .u64 scale_data, .param .u32 scale_count, .param .f32 scale_factor)
//! {
//!     .reg .pred %p<2>;
//!     .reg .f32 %f<4>;
//!     .reg .b32 %r<6>;
//!     .reg .b64 %rd<4>;
//!     ld.param.u64 %rd1, [scale_data];
//!     ld.param.u32 %r1, [scale_count];
//!     mov.u32 %r2, %ctaid.x;
//!     mov.u32 %r3, %ntid.x;
//!     mov.u32 %r4, %tid.x;
//!     mad.lo.s32 %r5, %r2, %r3, %r4;
//!     setp.ge.s32 %p1, %r5, %r1;
//!     @%p1 bra $end;
//!     mul.wide.s32 %rd2, %r5, 4;
//!     add.s64 %rd3, %rd1, %rd2;
//!     ld.global.f32 %f1, [%rd3];
//!     ld.param.f32 %f2, [scale_factor];
//!     mul.f32 %f3, %f1, %f2;
//!     st.global.f32 [%rd3], %f3;
//! $end:
//!     ret;
//! }";
//! let module = Module::parse(text, "scale.ptx")?;
//! assert_eq!(module.entries(), ["scale"]);
//! // The text does not say how many threads a CTA has.
//! let launch = Launch { threads: Some([256, 1, 1]), ..Launch::default() };
//! let program = module.entry("scale", &launch)?.verify()?;
//! assert_eq!((program.threads(), program.params.len()), (256, 3));
//! assert!(ptx::module_text(&program).contains("@%p1 bra $end;"));
//!
//! let error = module.entry("scale", &Launch::default()).unwrap_err();
//! assert!(error.to_string().starts_with("scale.ptx:5:"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Source: PTX ISA.

#![expect(clippy::wildcard_enum_match_arm, reason = "whatever else stands in a text is refused")]

mod agree;
mod error;
mod launch;
mod lex;
mod parse;
mod syntax;
#[cfg(test)]
mod tests;
mod translate;

pub use agree::agree;
pub use error::ReadError;
pub use launch::Launch;

use error::{At, Lines, Mistake};
use syntax::Text;

use crate::function::Function;

/// A text of PTX: kernels, and the functions and variables that they use.
#[derive(Clone, Debug)]
pub struct Module<'t> {
    file: String,
    lines: Lines<'t>,
    text: Text<'t>,
}

impl<'t> Module<'t> {
    /// Reads a text. `file` names it in errors and reports.
    ///
    /// # Errors
    /// The first place where the text is not PTX. Instructions are looked at later, by [`entry`](Self::entry).
    pub fn parse(text: &'t str, file: &str) -> Result<Self, ReadError> {
        let lines = Lines::new(text);
        match parse::parse(text) {
            Ok(text) => Ok(Self { file: file.to_owned(), lines, text }),
            Err(mistake) => Err(placed(file, &lines, mistake)),
        }
    }

    /// The names of the kernels, in the order of the text.
    pub fn entries(&self) -> Vec<&'t str> {
        let entries = self.text.functions.iter().filter(|function| function.entry && function.body.is_some());
        entries.map(|entry| entry.name.text).collect()
    }

    /// The program of a kernel, for a launch. `name` is one of [`entries`](Self::entries).
    ///
    /// # Errors
    /// There is no such kernel, the launch is not what its text requires, or the first instruction that is not read.
    pub fn entry(&self, name: &str, launch: &Launch) -> Result<Function, ReadError> {
        let entry = self.text.functions.iter().find(|function| function.entry && function.name.text == name);
        let Some(entry) = entry.filter(|entry| entry.body.is_some()) else {
            let message = format!("there is no kernel `{name}`, only {:?}", self.entries());
            return Err(placed(&self.file, &self.lines, Mistake { at: At(0), message }));
        };
        let read = translate::translate((&self.text, &self.lines, &self.file), entry, launch);
        read.map_err(|mistake| placed(&self.file, &self.lines, mistake))
    }
}

fn placed(file: &str, lines: &Lines<'_>, Mistake { at, message }: Mistake) -> ReadError {
    let (line, column) = lines.of(at);
    ReadError { file: file.to_owned(), line, column, message }
}
