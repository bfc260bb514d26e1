//! Races that shipped: each a program of a page, the twin without the bug, and what the emulator says.
//!
//! `cargo run --release --example races` lists them; `-- NAME` runs one of them, `-- all` every one. No GPU is needed.
//! `docs/races.md` is the same in one page.

mod exhibits;

use std::error::Error;

use exhibits::{EXHIBITS, exhibit};

/// Random schedules, besides those that repeat themselves.
const RANDOM: u64 = 50;

fn main() -> Result<(), Box<dyn Error>> {
    let Some(name) = std::env::args().nth(1) else {
        println!("Races that shipped; `-- NAME` runs one, `-- all` every one.\n");
        for one in EXHIBITS {
            println!("{:26} {}", one.name, one.shipped.join(", "));
        }
        return Ok(());
    };
    let known: Vec<_> = EXHIBITS.iter().filter(|one| name == "all" || one.name == name).collect();
    if known.is_empty() {
        return Err(format!("no exhibit `{name}`: run without a name for a list").into());
    }
    known.into_iter().try_for_each(show)
}

fn show(one: &exhibit::Exhibit) -> Result<(), Box<dyn Error>> {
    let (bug, twin) = (one.sweep(false, RANDOM)?, one.sweep(true, RANDOM)?);
    println!("# {}\n\nshipped   {}", one.name, one.shipped.join(", "));
    println!("bug       {}\ntwin      {}\nhidden    {}", one.bug, one.mended, one.hidden);
    match bug.first {
        Some(((schedule, seed), failure)) => {
            println!(
                "\n{} of {} schedules find it; {schedule:?}, seed {seed}:\n\n{failure}",
                bug.found, bug.runs
            );
        }
        None => println!("\nnone of {} schedules finds it", bug.runs),
    }
    match twin.first {
        None => println!("\nthe twin passes all of {}\n", twin.runs),
        Some((_, failure)) => return Err(format!("the twin of {} traps: {failure}", one.name).into()),
    }
    Ok(())
}
