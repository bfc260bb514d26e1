//! Bugs that other libraries shipped: races and hangs. Each is a one-page program with a twin without the bug; the
//! emulator finds the bug, or the program says why it reports nothing.
//!
//! `cargo run --release --example races` lists them; `-- NAME` runs one of them, `-- all` runs all. No GPU is
//! needed. `docs/races.md` shows all of them on one page.

mod exhibits;

use std::error::Error;

use exhibits::{EXHIBITS, exhibit};

/// Number of random schedules, in addition to the deterministic ones.
const RANDOM: u64 = 50;

fn main() -> Result<(), Box<dyn Error>> {
    let Some(name) = std::env::args().nth(1) else {
        println!("Races that shipped; `-- NAME` runs one, `-- all` runs all.\n");
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
        None => println!("\nnone of {} schedules finds it: {}", bug.runs, one.silent.unwrap_or("it must")),
    }
    match twin.first {
        None => println!("\nthe twin passes all of {}\n", twin.runs),
        Some((_, failure)) => return Err(format!("the twin of {} traps: {failure}", one.name).into()),
    }
    Ok(())
}
