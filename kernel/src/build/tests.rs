//! What a build script gets, and what it is told.

use collective::Format;

use super::*;

fn small(name: &str) -> AnyGemm {
    let spec: crate::KernelSpec = "tile=64x64x64".parse().expect("legal");
    spec.named(name).expect("legal")
}

#[test]
fn texts_and_their_names_are_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut lines = String::new();
    let kernels = [small("mine"), small("Other-2")];
    let built = emit_to(&kernels.each_ref().map(|of| of.clone().into()), folder.path(), None, &mut lines)
        .expect("written");
    assert_eq!(lines, "cargo::rerun-if-changed=build.rs\ncargo::rerun-if-env-changed=FALCHION_PTXAS\n");
    for (kernel, built) in kernels.iter().zip(&built) {
        assert_eq!((built.name.as_str(), &built.cubin), (kernel.name(), &None));
        let text = fs::read_to_string(&built.ptx).expect("written");
        assert_eq!(text, kernel.program().expect("legal").text());
    }
    let module = fs::read_to_string(folder.path().join("kernels.rs")).expect("written");
    for line in [
        "pub const MINE_PTX: &str = include_str!(\"mine.ptx\");",
        "pub const MINE_CUBIN: Option<&[u8]> = None;",
        "pub const OTHER_2_PTX: &str = include_str!(\"Other-2.ptx\");",
    ] {
        assert!(module.lines().any(|written| written == line), "{line}\n{module}");
    }
}

/// Two programs, and a call of no memory.
struct Twice;

impl Kernel<()> for Twice {
    fn program(&self) -> Result<Program, ptx::VerifyError> {
        small("mine").program()
    }

    fn steps(&self) -> Vec<Box<dyn Kernel<()> + '_>> {
        vec![Box::new(Once), Box::new(Once)]
    }

    fn launch(&self, _call: &(), _resident: u32) -> Result<Option<crate::Launch>, crate::LaunchError> {
        Ok(None)
    }

    fn visit(&self, _call: &mut (), _visit: &mut dyn crate::operands::Visit) {}
}

/// One of them.
struct Once;

impl Kernel<()> for Once {
    fn program(&self) -> Result<Program, ptx::VerifyError> {
        Twice.program()
    }

    fn launch(&self, _call: &(), _resident: u32) -> Result<Option<crate::Launch>, crate::LaunchError> {
        Ok(None)
    }

    fn visit(&self, _call: &mut (), _visit: &mut dyn crate::operands::Visit) {}
}

#[test]
fn every_program_of_any_kernel_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let kernels = [
        Ahead::of("turned", &crate::Transpose::of(Format::Bf16).expect("16 bits")),
        Ahead::of("two", &Twice),
    ];
    let built = emit_to(&kernels, folder.path(), None, &mut String::new()).expect("written");
    let names: Vec<_> = built.iter().map(|built| built.name.as_str()).collect();
    assert_eq!(names, ["turned", "two_1", "two_2"]);
    let module = fs::read_to_string(folder.path().join("kernels.rs")).expect("written");
    assert!(module.contains("pub const TWO_2_PTX: &str = include_str!(\"two_2.ptx\");"), "{module}");
    let twice = [Ahead::of("two", &Twice), small("two-2").into()];
    let error =
        emit_to(&twice, folder.path(), None, &mut String::new()).expect_err("one constant").to_string();
    assert!(error.contains("`two-2`: a name that differs"), "{error}");
}

#[test]
fn names_that_make_no_file_are_refused() {
    for (why, names, words) in [
        ("the text of a spec", &["tile=64x64x64 stages=4"][..], "`tile=64x64x64 stages=4`: a letter"),
        ("a path", &["../mine"], "a letter"),
        ("none", &[""], "a letter"),
        ("a digit first", &["2nd"], "a letter"),
        ("a letter that is none of ASCII", &["ядро"], "a letter"),
        ("two of one name", &["mine", "mine"], "differs from the others"),
        ("two of one constant", &["my-kernel", "My_Kernel"], "`My_Kernel`: a name that differs"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let kernels: Vec<Ahead> = names.iter().map(|name| small(name).into()).collect();
        let error = emit_to(&kernels, folder.path(), None, &mut String::new()).expect_err(why).to_string();
        assert!(error.contains(words), "{why}: {error}");
    }
}

#[test]
fn folders_that_cannot_be_written_are_errors() {
    let error = emit_to(&[small("mine").into()], Path::new("no/such/folder"), None, &mut String::new());
    let error = error.expect_err("it is not there").to_string();
    assert!(error.contains("no/such/folder") && error.contains("mine.ptx"), "{error}");
}

/// Scripts in place of the assembler, and what each one leads to.
#[cfg(unix)]
#[test]
fn assemblers_are_judged_by_what_they_do() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().expect("a folder");
    let script = |text: &str| {
        let path = folder.path().join(format!("ptxas-{}", text.len()));
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("ours");
        path
    };
    let works =
        "test \"$1\" = -arch=sm_90a && head -c 8 \"$4\" >/dev/null && printf '\\177ELF-%s' \"$2\" > \"$3\"";
    for (why, path, want) in [
        ("it works", script(works), Ok("")),
        (
            "it warns",
            script(&format!("echo 'info: (C7510) serialized' >&2; {works}")),
            Ok("(C7510) serialized"),
        ),
        ("it fails", script("echo 'line 3: bad' >&2; exit 255"), Err("exit status: 255:\nline 3: bad")),
        ("it writes nothing", script("exit 0"), Err("no binary")),
        ("it writes something else", script("echo text > \"$3\""), Err("no binary")),
        ("it fails after it has written", script(&format!("{works}; exit 1")), Err("exit status: 1")),
        ("it is not there", folder.path().join("missing"), Err("missing, which cannot be started")),
        ("it is a folder", folder.path().to_owned(), Err("cannot be started")),
    ] {
        let out = tempfile::tempdir().expect("a folder");
        let mut lines = String::new();
        let built = emit_to(&[small("mine").into()], out.path(), Some(path.as_path()), &mut lines);
        let cubin = out.path().join("mine.cubin");
        match (built, want) {
            (Ok(built), Ok(warning)) => {
                assert_eq!(built[0].cubin.as_ref(), Some(&cubin), "{why}");
                assert_eq!(fs::read(&cubin).expect("written"), b"\x7fELF--o", "{why}");
                assert!(lines.contains(&format!("cargo::rerun-if-changed={}\n", path.display())), "{lines}");
                assert_eq!(lines.contains("cargo::warning=kernel `mine`: "), !warning.is_empty(), "{lines}");
                assert!(lines.contains(warning), "{why}: {lines}");
                let module = fs::read_to_string(out.path().join("kernels.rs")).expect("written");
                assert!(module.contains("= Some(include_bytes!(\"mine.cubin\"));"), "{module}");
            }
            (Err(error), Err(words)) => {
                let error = error.to_string();
                assert!(error.contains(words) && error.contains(PTXAS), "{why}: {error}");
                assert!(!cubin.exists(), "{why}");
            }
            (got, want) => panic!("{why}: {got:?}, {want:?} was expected"),
        }
    }
}
