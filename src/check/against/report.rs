//! The comparison as text.

use core::fmt;

use super::{BufferDifference, Comparison, Excuse, FirstDifference};
use crate::check::finding::Spot;
use crate::check::report::Ran;

/// Lines with a word in front, as other commands print them.
impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Ran { file, kernel } in &self.kernels {
            writeln!(f, "kernel    {kernel} of {file}")?;
        }
        writeln!(f, "device    {}", self.device)?;
        for note in &self.notes {
            writeln!(f, "note      {note}")?;
        }
        let Some((kernel, launch)) = self.after else {
            return writeln!(f, "equal     every bit of every buffer after each kernel");
        };
        let name = self.kernels.get(kernel).map_or("", |ran| ran.kernel.as_str());
        for BufferDifference { buffer, element, on_device, emulated, count: (count, all) } in
            &self.differences
        {
            writeln!(
                f,
                "differs   element {element} of buffer `{buffer}` after `{name}` in launch {launch}: {on_device} on the device, {emulated} in the emulator; {count} of {all} differ"
            )?;
        }
        match &self.origin {
            Some(FirstDifference { spot, thread, register, bits: [device, emulated], reads, ways }) => {
                writeln!(f, "first     {}", place(spot))?;
                if *ways {
                    return writeln!(
                        f,
                        "          after it the device goes another way than the emulator, in {thread}"
                    );
                }
                writeln!(
                    f,
                    "          {register} is {device:#x} on the device, {emulated:#x} in the emulator, in {thread}"
                )?;
                let why = if *reads {
                    "it reads memory or another thread, and no statement was found that computes other bits from equal ones"
                } else {
                    "the registers that it reads are equal"
                };
                writeln!(f, "          {why}")?;
            }
            None if self.silent => {
                writeln!(f, "first     the device has recorded nothing: it does not execute the kernel")?;
            }
            // The note says why nothing was found.
            None if self.is_unrecorded => {}
            None if self.excused.is_empty() => {
                writeln!(
                    f,
                    "first     no register differs: what copies, atomics or stores have written does"
                )?;
            }
            None => writeln!(f, "first     nothing differs before statements whose results may differ:")?,
        }
        for Excuse { spot, why, threads } in &self.excused {
            writeln!(f, "may       {}: {why}; in {threads} threads", place(spot))?;
        }
        Ok(())
    }
}

fn place(Spot { file, line, column, text, origin }: &Spot) -> String {
    let origin = origin.as_ref().map_or(String::new(), |(file, line)| format!(" ({file}:{line})"));
    format!("{file}:{line}:{column}: {text}{origin}")
}
