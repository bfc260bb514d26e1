//! What a convolution is of, as a problem with a text: [`ConvProblem`].

use core::fmt;
use core::str::FromStr;

use collective::stage::{Axis, Im2col};

use crate::problem::GemmProblem;
use crate::words::{self, As, SpecKey, Worded, divided};

/// Where the filters of a convolution read images, and how many filters there are. As an implicit GEMM, A has the output pixels of all
/// images as rows and the channels of all taps as columns, and B is the filters.
///
/// Its text has the images, `IMAGESxHEIGHTxWIDTHxCHANNELS`, the filters, `FILTERSxTAPSxTAPS`, and what differs from strides and dilations
/// of 1 and no padding as `key=value` words: `stride=`, `padding=`, `after=` (where padding after the pixels is not that before) and
/// `dilation=`, with a number for each dimension, the outermost first.
///
/// ```
/// use kernel::{ConvProblem, GemmProblem};
///
/// let conv: ConvProblem<2> = "2x56x56x64 32x3x3 stride=2x2 padding=1x1".parse()?;
/// assert_eq!(GemmProblem::from(conv), GemmProblem { m: 2 * 28 * 28, n: 32, k: 9 * 64 });
/// assert_eq!(conv.to_string(), "2x56x56x64 32x3x3 stride=2x2 padding=1x1");
/// let refused = "2x56x56x64 32x3x3 stride=0x2".parse::<ConvProblem<2>>();
/// assert!(refused.is_err_and(|error| error.contains("has no results")));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConvProblem<const D: usize> {
    /// Where the filters read.
    pub of: Im2col<D>,
    /// Filters: the channels of the result.
    pub filters: u32,
}

impl<const D: usize> ConvProblem<D> {
    /// The keys of its text, in the order in which they are printed.
    const KEYS: [SpecKey<Self>; 4] = [
        SpecKey::by(
            "stride",
            "a number of pixels for each dimension",
            &As(|of| of.each(|axis| axis.step), |of, all| of.set(all, |axis, step| axis.step = step)),
        ),
        SpecKey::by(
            "padding",
            "a number of pixels for each dimension",
            &As(
                |of| of.each(|axis| axis.padding[0]),
                |of, all| of.set(all, |axis, padding| axis.padding = [padding; 2]),
            ),
        ),
        SpecKey::by(
            "after",
            "a number of pixels for each dimension",
            &As(
                |of| of.each(|axis| axis.padding[1]),
                |of, all| of.set(all, |axis, after| axis.padding[1] = after),
            ),
        ),
        SpecKey::by(
            "dilation",
            "a number of pixels for each dimension",
            &As(
                |of| of.each(|axis| axis.dilation),
                |of, all| of.set(all, |axis, dilation| axis.dilation = dilation),
            ),
        ),
    ];

    /// A filter of so many taps at every pixel, without padding. Pixels and taps have the outermost dimension first.
    fn usual([images, channels, filters]: [u32; 3], pixels: &[u32], taps: &[u32]) -> Self {
        let axes = core::array::from_fn(|i| Axis::new(pixels[D - 1 - i], taps[D - 1 - i]));
        Self { of: Im2col { images, axes, channels }, filters }
    }

    /// A number of each dimension, the outermost first.
    fn each(&self, of: fn(&Axis) -> u32) -> [u32; D] {
        core::array::from_fn(|i| of(&self.of.axes[D - 1 - i]))
    }

    fn set(&mut self, numbers: [u32; D], set: fn(&mut Axis, u32)) {
        self.of.axes.iter_mut().rev().zip(numbers).for_each(|(axis, number)| set(axis, number));
    }
}

impl<const D: usize> From<ConvProblem<D>> for GemmProblem {
    fn from(ConvProblem { of, filters }: ConvProblem<D>) -> Self {
        Self { m: of.rows(), n: filters, k: of.depth() }
    }
}

impl<const D: usize> fmt::Display for ConvProblem<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of: Im2col { images, channels, .. }, filters } = *self;
        let [pixels, taps] = [self.each(|axis| axis.pixels), self.each(|axis| axis.taps)];
        let [of_images, of_filters] = [pixels, taps].map(|numbers| numbers.text().unwrap_or_default());
        write!(f, "{images}x{of_images}x{channels} {filters}x{of_filters}")?;
        let usual = Self::usual([images, channels, filters], &pixels, &taps);
        f.write_str(if *self == usual { "" } else { " " })?;
        words::write(&Self::KEYS, self, usual, f)
    }
}

impl<const D: usize> FromStr for ConvProblem<D> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (plain, others) = divided(text);
        let numbers = |word: &str| word.split('x').map(u32::read).collect::<Option<Vec<_>>>();
        let plain: Vec<_> = plain.into_iter().map(numbers).collect();
        let usual = match &plain[..] {
            [Some(images), Some(filters)] if images.len() == D + 2 && filters.len() == D + 1 => {
                Self::usual([images[0], images[D + 1], filters[0]], &images[1..=D], &filters[1..])
            }
            _ => {
                let [pixels, taps] = [["DEPTHx", "HEIGHTx", "WIDTHx"], ["xTAPS"; 3]]
                    .map(|names| names[3_usize.saturating_sub(D)..].concat());
                return Err(format!(
                    "`{text}` was found, IMAGESx{pixels}CHANNELS FILTERS{taps} and words such as padding= were needed"
                ));
            }
        };
        let problem = words::read(&Self::KEYS, usual, &others).map_err(|error| error.to_string())?;
        if problem.of.axes.iter().any(|axis| axis.outputs() == 0) {
            return Err(format!(
                "`{text}` has no results: strides from 1 on, and filters within the padded images were needed"
            ));
        }
        Ok(problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<const D: usize>(text: &str) -> Result<ConvProblem<D>, String> {
        text.parse()
    }

    #[test]
    fn problems_read_back() {
        for (text, want) in [
            ("1x9x10x64 24x3x3", "1x9x10x64 24x3x3"),
            ("padding=1x1 1x9x10x64, 24x3x3 stride=1x1", "1x9x10x64 24x3x3 padding=1x1"),
            ("1x9x10x64 24x3x2 stride=2x1 padding=1x0", "1x9x10x64 24x3x2 stride=2x1 padding=1x0"),
            ("1x9x10x64 24x3x3 dilation=1x2 after=0x1", "1x9x10x64 24x3x3 after=0x1 dilation=1x2"),
            ("1x9x10x64 24x3x3 after=1x2 padding=1x1", "1x9x10x64 24x3x3 padding=1x1 after=1x2"),
            ("0x9x10x64 24x3x3", "0x9x10x64 24x3x3"),
        ] {
            let problem = read::<2>(text).expect(text);
            assert_eq!(problem.to_string(), want, "{text}");
            assert_eq!(read(want), Ok(problem), "{text}");
        }
        let [down, along] =
            [Axis::new(9, 3), Axis { step: 2, padding: [1, 0], dilation: 3, ..Axis::new(10, 2) }];
        let of = Im2col { images: 5, axes: [along, down], channels: 64 };
        let text = "5x9x10x64 24x3x2 stride=1x2 padding=0x1 after=0x0 dilation=1x3";
        assert_eq!(read(text), Ok(ConvProblem { of, filters: 24 }));
        assert_eq!(
            read::<1>("3x100x64 8x5").map(GemmProblem::from),
            Ok(GemmProblem { m: 3 * 96, n: 8, k: 320 })
        );
        assert!(
            read::<3>("1x4x5x6x64 8x1x2x3 padding=0x1x2").is_ok_and(|of| of.of.axes[0].padding == [2, 2])
        );
    }

    #[test]
    fn what_is_no_problem_is_refused() {
        for (text, words) in [
            (
                "",
                "`` was found, IMAGESxHEIGHTxWIDTHxCHANNELS FILTERSxTAPSxTAPS and words such as padding= were needed",
            ),
            ("1x9x10 24x3x3", "`1x9x10 24x3x3` was found, IMAGESx"),
            ("1x9x10x64 24x3x3x3", "was found, IMAGESx"),
            ("1x9x10xmany 24x3x3", "was found, IMAGESx"),
            ("1x9x10x64 24x3x3 1x1", "was found, IMAGESx"),
            ("1x9x10x64 24x3x3 stride=2", "`stride=2`: a number of pixels for each dimension was needed"),
            (
                "1x9x10x64 24x3x3 step=2x2",
                "`step=2x2`: one of the keys stride, padding, after, dilation was needed",
            ),
            ("1x9x10x64 24x3x3 stride=0x1", "has no results: strides from 1 on"),
            ("1x2x2x64 24x5x5", "has no results"),
        ] {
            let error = read::<2>(text).expect_err(text);
            assert!(error.contains(words), "{text}: {error}");
        }
        assert!(
            read::<1>("3x100x64")
                .is_err_and(|error| error.contains("IMAGESxWIDTHxCHANNELS FILTERSxTAPS and"))
        );
    }
}
