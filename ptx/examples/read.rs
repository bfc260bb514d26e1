//! Reads files of PTX and says which of their kernels become programs: `cargo run -p falchion-ptx --example read -- a.ptx b.ptx`. With
//! `--to FOLDER` before the files it also prints each program again, into a file there.
//!
//! Where a text leaves the number of threads open, 128 are taken.

use ptx::read::{Launch, Module};

fn main() {
    let mut files: Vec<String> = std::env::args().skip(1).collect();
    let folder =
        (files.first().map(String::as_str) == Some("--to") && files.len() > 1).then(|| files.remove(1));
    if folder.is_some() {
        files.remove(0);
    }
    let mut refused = 0;
    for file in files {
        if let Err(error) = read(&file, folder.as_deref()) {
            println!("{error}");
            refused += 1;
        }
    }
    std::process::exit(i32::from(refused > 0));
}

fn read(file: &str, folder: Option<&str>) -> Result<(), String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let module = Module::parse(&text, file).map_err(|error| error.to_string())?;
    for (index, name) in module.entries().into_iter().enumerate() {
        let open = Launch { threads: Some([128, 1, 1]), ..Launch::default() };
        let read = module.entry(name, &Launch::default()).or_else(|error| {
            if error.message.contains("a launch must") { module.entry(name, &open) } else { Err(error) }
        });
        let program = read.map_err(|error| error.to_string())?;
        let program = program.verify().map_err(|error| error.to_string())?;
        println!(
            "{file}: `{name}`: {} statements, {} registers",
            program.body.len(),
            program.registers.len()
        );
        if let Some(folder) = folder {
            let stem = file.replace(['/', '.'], "_");
            let path = format!("{folder}/{}_{index}.ptx", stem.trim_start_matches('_'));
            std::fs::write(&path, ptx::module_text(&program)).map_err(|error| format!("{path}: {error}"))?;
        }
    }
    Ok(())
}
