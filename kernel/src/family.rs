//! Families of kernels: what a kernel of many, described by a spec, adds to [`Kernel`].

mod expected;
mod gemm;
mod inputs;
mod problem;
mod shipped;

use core::fmt::{Debug, Display};
use core::str::FromStr;

pub use expected::{Allowed, Blocks, Expected, Needed};
pub use inputs::{Filled, Inputs, Unanswered};
pub use problem::Problem;
pub use shipped::{ShippedOf, measured_first};

use crate::kernel::Kernel;
use crate::operands::{Contents, Visit};
use crate::select::Machine;
use crate::words::pairs;

/// A family: kernels that specs describe, for problems of one kind. The tuner, the records on disk, the checks
/// against a reference, the proof and the command line work with any family. [`AnyGemm`](crate::AnyGemm) is one.
///
/// Specs and problems have texts. Records are kept under them, so a text must say all that its value says, and
/// be read back as the same value.
pub trait Family: Kernel<Self::Call> + Clone + Debug + Send + 'static {
    /// The name, in errors and for the records on disk.
    const NAME: &'static str;

    /// Whether the version of this library says which programs specs have, as for the library's own families. For any other
    /// family, records keep the digest of what was measured, and a time counts for the same programs only.
    const VERSIONED: bool = false;

    /// What is asked of a kernel: all of a call but memory. Where nothing but the problem is asked, the problem itself. Of each problem
    /// there is a request, for operands that are packed.
    type Request<'r>: Clone + Into<Self::Problem> + TryFrom<Self::Problem, Error: Display>;

    /// The part of a request that decides which kernel is fastest.
    type Problem: Clone + Ord + Debug + Send + Display + FromStr<Err: Display>;

    /// A kernel as plain data.
    type Spec: Clone + PartialEq + Debug + Send + Display + FromStr<Err: Display>;

    /// A call.
    type Call: Clone;

    /// The kernel of a spec.
    ///
    /// # Errors
    /// The rule that the spec breaks, in a sentence.
    fn of_spec(spec: &Self::Spec) -> Result<Self, String>;

    /// The kernel's spec; `None` for a kernel with parts from outside the family.
    fn spec(&self) -> Option<Self::Spec>;

    /// The request of a text, for operands that are packed. The text of its [`Problem`](Self::Problem) is such a text.
    ///
    /// # Errors
    /// What is wrong with the text, in a sentence.
    fn request(text: &str) -> Result<Self::Request<'static>, String> {
        let problem: Self::Problem = text.parse().map_err(|error| format!("{error}"))?;
        problem.try_into().map_err(|error| format!("{error}"))
    }

    /// The problem of a request.
    fn problem(request: &Self::Request<'_>) -> Self::Problem {
        request.clone().into()
    }

    /// The call of a request, without a workspace. If no memory was given, addresses are 0, or any others that are aligned as the
    /// memory will be.
    fn call(request: &Self::Request<'_>) -> Self::Call;

    /// The kernels that can compute a request, at most `most` of them, the fastest first as far as a model
    /// can tell; before these the one that was measured for exactly this request on the machine's card, if the library has such
    /// [measurements](ShippedOf).
    ///
    /// # Errors
    /// There is none: why, in a sentence.
    fn ranked(
        request: &Self::Request<'_>,
        machine: &Machine,
        most: usize,
    ) -> Result<Vec<Predicted<Self>>, String>;

    /// The kernel to take for a request without measuring: the one that is [ranked](Self::ranked) first.
    ///
    /// # Errors
    /// Those of [`ranked`](Self::ranked).
    fn first(request: &Self::Request<'_>, machine: &Machine) -> Result<Predicted<Self>, String> {
        let first = Self::ranked(request, machine, 1)?.into_iter().next();
        first.ok_or_else(|| "no kernel of the space fits".to_owned())
    }

    /// The same request, for which nothing counts that was measured and comes with the library: its kernels are
    /// [ranked](Self::ranked) by the model alone. By default nothing comes with it.
    fn unrecorded<'r>(request: &Self::Request<'r>) -> Self::Request<'r> {
        request.clone()
    }

    /// The kernel with its time by the model, which is not a number where the model does not rank it.
    ///
    /// # Errors
    /// It cannot compute the request.
    fn predicted(self, request: &Self::Request<'_>, machine: &Machine) -> Result<Predicted<Self>, String> {
        self.serves(request)?;
        let ranked = Self::ranked(&Self::unrecorded(request), machine, usize::MAX).ok().into_iter().flatten();
        let same = ranked.into_iter().find(|of| of.kernel.spec() == self.spec());
        Ok(same.unwrap_or(Predicted::new(self, f64::NAN)))
    }

    /// The words that a request says of the specs of its kernels, with their values: whoever names a spec may leave them out. A word that is there twice
    /// may have either value: the first one is that of kernels of its space, the last one what the request says.
    fn said(_request: &Self::Request<'_>) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Operations that a request counts as, to compare its kernels by their rates.
    fn operations(request: &Self::Request<'_>) -> f64;

    /// The words of memory that describes a request to the device, where [`Contents`] are such: tables and
    /// records. By default there are none.
    fn words(_request: &Self::Request<'_>, _contents: Contents) -> Vec<u32> {
        Vec::new()
    }

    /// Visits the memory that records of a request describe, and gives the words of the records with the addresses that the visitor has
    /// given. By default there are no records.
    fn describe(_request: &Self::Request<'_>, _visit: &mut dyn Visit) -> Vec<u32> {
        Vec::new()
    }

    /// Checks that the kernel is one for requests of this kind: formats and whatever else decides what a call's memory is. By default
    /// every kernel is.
    ///
    /// # Errors
    /// What differs, in a sentence.
    fn serves(&self, _request: &Self::Request<'_>) -> Result<(), String> {
        Ok(())
    }

    /// The elements that the kernel writes for a call of a request, whose memory the inputs are. Of each piece of memory that it writes, all are expected or some: a piece
    /// of which nothing is expected is an error, but for a workspace and a report. It is asked only if there is
    /// something to write. By default nothing is known, and no kernel of the family can be checked.
    ///
    /// # Errors
    /// Why the results are not known, in a sentence. A check then fails.
    fn expect(
        &self,
        _request: &Self::Request<'_>,
        _call: &Self::Call,
        _inputs: &Inputs<'_>,
    ) -> Result<Vec<Expected>, String> {
        Err(format!("the family {} has no reference, `Family::expect` was needed", Self::NAME))
    }

    /// Numbers of the kernel: a name, a value and a note each. Those of its program are known. By default there are none.
    fn numbers(&self) -> Vec<[String; 3]> {
        Vec::new()
    }

    /// What the kernel computes of a request block by block, for a picture; `None` if a picture shows nothing.
    fn blocks(&self, _request: &Self::Request<'_>) -> Option<Blocks> {
        None
    }

    /// The first of these kernels, with times in microseconds, the fastest first, that can compute the
    /// request. By default, the first that [serves](Self::serves) it.
    fn measured(
        request: &Self::Request<'_>,
        _machine: &Machine,
        times: &[(Self::Spec, f64)],
    ) -> Option<Predicted<Self>> {
        times.iter().find_map(|(spec, microseconds)| {
            let kernel = Self::of_spec(spec).ok().filter(|kernel| kernel.serves(request).is_ok())?;
            Some(Predicted::new(kernel, *microseconds))
        })
    }
}

/// A kernel and its time.
#[derive(Clone, Debug)]
pub struct Predicted<K> {
    /// The kernel.
    pub kernel: K,
    /// Time per launch, in microseconds.
    pub microseconds: f64,
    /// One sentence that says what limits the time; empty where nothing does.
    pub reason: String,
}

impl<K> Predicted<K> {
    /// A kernel and its time, of which nothing more is said.
    pub const fn new(kernel: K, microseconds: f64) -> Self {
        Self { kernel, microseconds, reason: String::new() }
    }
}

/// The kernel of a spec's text for a request, in which what the request [says](Family::said) may be left out but not be otherwise.
///
/// # Errors
/// A word that is otherwise, or the first one that is no spec's; the rule that the spec breaks.
pub fn asked<K: Family>(text: &str, request: &K::Request<'_>) -> Result<K, String> {
    let read = |text: &str| text.parse::<K::Spec>().map_err(|error| error.to_string());
    let mut whole = text.to_owned();
    let said = K::said(request);
    for (i, (key, value)) in said.iter().enumerate() {
        if said[..i].iter().any(|(before, _)| before == key) {
            continue;
        }
        let values = || said.iter().filter(|(known, _)| known == key).map(|(_, value)| value);
        let given = pairs(text).find(|(known, _)| known == key).map(|(_, given)| given.unwrap_or(""));
        match given {
            None => whole = format!("{whole} {key}={value}"),
            Some(given) if values().any(|value| given == value) => {}
            Some(given) => {
                // Another way to write the same value gives the same spec.
                let others = pairs(text).filter(|(known, _)| known != key);
                let others: Vec<_> =
                    others.filter_map(|(key, value)| Some(format!("{key}={}", value?))).collect();
                let others = others.join(" ");
                let of = |value: &str| read(&format!("{others} {key}={value}")).ok();
                let own = of(given);
                if own.is_none() || values().all(|value| of(value) != own) {
                    let asked = values().next_back().unwrap_or(value);
                    return Err(format!("{key} is `{given}`, `{asked}` was needed, as the call says"));
                }
            }
        }
    }
    K::of_spec(&read(&whole)?)
}

/// Checks that what decides a kernel's memory is what a problem says: an implementation of [`Family::serves`] by the name of each such
/// part, the kernel's, and the problem's.
///
/// # Errors
/// The first that differs.
pub fn alike<W: AsRef<str>>(parts: impl IntoIterator<Item = (&'static str, W, W)>) -> Result<(), String> {
    match parts.into_iter().find(|(_, own, asked)| own.as_ref() != asked.as_ref()) {
        None => Ok(()),
        Some((part, own, asked)) => {
            let [own, asked] = [own.as_ref(), asked.as_ref()];
            Err(format!("the kernel's {part} is {own}, {asked} was needed, as the problem says"))
        }
    }
}

/// The legal kernels of a space with their predicted times, at most `most` of them, the fastest first: an
/// implementation of [`Family::ranked`] for a space that is small.
///
/// # Errors
/// No spec is legal: what is wrong with the first one.
pub fn cheapest<K: Family>(
    space: impl IntoIterator<Item = K::Spec>,
    most: usize,
    time: impl Fn(&K) -> f64,
) -> Result<Vec<Predicted<K>>, String> {
    let (mut all, mut refused) = (Vec::new(), None);
    for spec in space {
        match K::of_spec(&spec) {
            Ok(kernel) => {
                let microseconds = time(&kernel);
                all.push(Predicted::new(kernel, microseconds));
            }
            Err(reason) => refused = refused.or(Some(reason)),
        }
    }
    all.sort_by(|a, b| a.microseconds.total_cmp(&b.microseconds));
    all.truncate(most);
    match refused {
        Some(reason) if all.is_empty() => Err(reason),
        _ if all.is_empty() => Err("the space is empty".to_owned()),
        _ => Ok(all),
    }
}
