//! Reads files of PTX and says which of their kernels become programs: `cargo run -p falchion-ptx --example read -- a.ptx b.ptx`.
//!
//! Where a text leaves the number of threads open, 128 are taken.

use ptx::read::{Launch, Module};

fn main() {
    let mut refused = 0;
    for file in std::env::args().skip(1) {
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) => {
                println!("{file}: {error}");
                refused += 1;
                continue;
            }
        };
        let module = match Module::parse(&text, &file) {
            Ok(module) => module,
            Err(error) => {
                println!("{error}");
                refused += 1;
                continue;
            }
        };
        for name in module.entries() {
            let open = Launch { threads: Some([128, 1, 1]), ..Launch::default() };
            let read = module.entry(name, &Launch::default()).or_else(|error| {
                if error.message.contains("a launch must") { module.entry(name, &open) } else { Err(error) }
            });
            match read.map(ptx::Function::verify) {
                Ok(Ok(program)) => {
                    let statements = program.body.len();
                    println!("{file}: `{name}`: {statements} statements, {} registers", program.registers.len());
                }
                Ok(Err(error)) => {
                    println!("{error}");
                    refused += 1;
                }
                Err(error) => {
                    println!("{error}");
                    refused += 1;
                }
            }
        }
    }
    std::process::exit(i32::from(refused > 0));
}
