//! Planted failures: processes that die, never come, or want something else. Each is an error that names it,
//! on every rank, in time.
//!
//! Ranks are three, with emulators. With `FALCHION_CARDS=2` they are two, each with a GPU of the host.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// What one process of a job has that others have not.
type Own<'a> = (u32, &'a [(&'a str, &'a str)], &'a [&'a str]);

/// Ranks that have a GPU each; `None` for emulators.
fn cards() -> Option<u32> {
    std::env::var("FALCHION_CARDS").ok().map(|count| count.parse().expect("a number of cards"))
}

/// Ranks of a job, and the last of them.
fn ranks() -> [u32; 2] {
    let size = cards().unwrap_or(3);
    [size, size - 1]
}

/// Seconds in which all ranks come to the meeting: a GPU and NCCL take some.
fn patience() -> u64 {
    if cards().is_some() { 15 } else { 4 }
}

/// A job of processes that meet by a file.
struct Job {
    folder: tempfile::TempDir,
}

impl Job {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    fn meeting(&self) -> String {
        format!("file:{}", self.folder.path().join("meet").display())
    }

    /// Starts a rank of `size` that checks layers for ever.
    fn start(&self, rank: u32, size: u32, variables: &[(&str, &str)], options: &[&str]) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_falchion-parallel"));
        // What a launcher would say is said here; where libraries are, and what they may do, stays.
        let stays = |name: &str| {
            ["LD_", "NCCL_", "CUDA_", "FALCHION_NCCL", "HOME"].iter().any(|begin| name.starts_with(begin))
        };
        command.env_clear().envs(std::env::vars().filter(|(name, _)| stays(name)));
        let local = if cards().is_some() { rank } else { 0 };
        command.envs([
            ("RANK", rank.to_string()),
            ("WORLD_SIZE", size.to_string()),
            ("LOCAL_RANK", local.to_string()),
        ]);
        command.env("FALCHION_MEETING", self.meeting()).envs(variables.iter().copied());
        command.args(["check", "--meeting", &patience().to_string(), "--timeout", "3", "--silence", "2"]);
        if cards().is_none() {
            command.arg("--emulated");
        }
        if !options.contains(&"--layers") {
            command.args(["--layers", "1000000"]);
        }
        command.args(options).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts")
    }
}

/// Waits for a process, at most for some seconds; on a card for some more.
fn end(mut child: Child, seconds: u64) -> Output {
    let (began, seconds) = (Instant::now(), seconds + if cards().is_some() { 30 } else { 0 });
    while child.try_wait().expect("a child").is_none() {
        if began.elapsed() > Duration::from_secs(seconds) {
            let _ = child.kill();
            let output = child.wait_with_output().expect("a child");
            panic!("a rank hung: {}", String::from_utf8_lossy(&output.stderr));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().expect("a child")
}

/// A rank's last words.
fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}

/// Runs all ranks, of which some are special, and returns what each says. `planted` is done to them after
/// a while.
fn run(own: &[Own<'_>], planted: impl FnOnce(&mut [Child])) -> Vec<String> {
    let job = Job::new();
    let [size, _] = ranks();
    let mut children: Vec<Child> = (0..size)
        .map(|rank| {
            let special = own.iter().find(|(number, ..)| *number == rank);
            let (variables, options) =
                special.map_or((&[][..], &[][..]), |(_, variables, options)| (variables, options));
            job.start(rank, size, variables, options)
        })
        .collect();
    planted(&mut children);
    // Whoever waits for the meeting waits 4 s, and whoever asked rank 0 last a little longer.
    children
        .into_iter()
        .map(|child| end(child, 12))
        .map(|output| if output.status.success() { "success".to_owned() } else { words(&output) })
        .collect()
}

/// Waits until rank 0 says that layers are checked.
fn working(children: &mut [Child]) {
    use std::io::{BufRead, BufReader};
    let out = children[0].stdout.as_mut().expect("a pipe");
    let lines = BufReader::new(out).lines().map_while(Result::ok);
    assert!(lines.into_iter().any(|line| line.ends_with("0 layers")), "nothing was checked");
}

fn signal(child: &Child, name: &str) {
    let status =
        Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().expect("kill");
    assert!(status.success());
}

#[test]
fn a_rank_that_is_killed_ends_all() {
    let mut own = 0;
    let said = run(&[], |children| {
        working(children);
        own = children[1].id();
        children[1].kill().expect("killed");
    });
    for rank in (0..said.len()).filter(|rank| *rank != 1) {
        assert!(
            said[rank]
                .contains(&format!("rank {rank}: the group has failed: rank 1 ended (process {own} on ")),
            "{said:?}"
        );
    }
}

#[test]
fn rank_0_that_is_killed_ends_all() {
    let said = run(&[], |children| {
        working(children);
        children[0].kill().expect("killed");
    });
    for rank in 1..said.len() {
        assert!(
            said[rank].contains("the group has failed: rank 0, which coordinates the group, ended"),
            "{said:?}"
        );
    }
}

#[test]
fn a_rank_that_is_stopped_ends_the_others() {
    let last = ranks()[1] as usize;
    let said = run(&[], |children| {
        working(children);
        signal(&children[last], "STOP");
        std::thread::sleep(Duration::from_secs(4));
        signal(&children[last], "CONT");
    });
    for said in &said[..last] {
        let named = [format!("rank {last} was not heard of for 2 s"), format!("rank {last} did not come to")];
        // Whoever waits on its GPU says so of itself.
        let waits = said.contains("did not finish within 3 s");
        assert!(named.iter().any(|named| said.contains(named)) || cards().is_some() && waits, "{said}");
    }
    // It learns of it when it goes on.
    assert!(said[last].contains("the group has failed"), "{said:?}");
}

#[test]
fn a_rank_that_never_comes_is_named() {
    let (last, seconds) = (ranks()[1] as usize, patience());
    let said = run(&[], |children| children[last].kill().expect("killed"));
    for said in &said[..last] {
        // It may have come before it was killed.
        let named = [
            format!("rank {last} did not come to the meeting within {seconds} s"),
            format!("rank {last} ended"),
        ];
        assert!(named.iter().any(|named| said.contains(named)), "{said}");
    }
}

#[test]
fn rank_0_that_never_comes_is_named() {
    let job = Job::new();
    let said = words(&end(job.start(1, 2, &[], &[]), 10));
    let expected = format!("rank 0 was not reached within {} s: the meeting's file", patience());
    assert!(said.contains(&expected), "{said}");
}

#[test]
fn a_file_of_a_job_that_ended_is_not_the_meeting() {
    let job = Job::new();
    std::fs::write(job.folder.path().join("meet"), "127.0.0.1:9\n").expect("written");
    let late = job.start(1, 2, &[], &["--layers", "3"]);
    std::thread::sleep(Duration::from_millis(300));
    let first = job.start(0, 2, &[], &["--layers", "3"]);
    for child in [first, late] {
        let output = end(child, 20);
        assert!(output.status.success(), "{}", words(&output));
    }
    assert!(!job.folder.path().join("meet").exists(), "the file is removed");
}

#[test]
fn ranks_that_count_differently_are_refused() {
    let [size, last] = ranks();
    for said in run(&[(last, &[("WORLD_SIZE", "4")], &[])], |_| {}) {
        assert!(said.contains(&format!("rank {last} counts 4 ranks, rank 0 counts {size}")), "{said}");
    }
}

#[test]
fn a_rank_that_comes_twice_is_refused() {
    let [size, last] = ranks();
    let again = (size - 2).to_string();
    for said in run(&[(last, &[("RANK", &again)], &[])], |_| {}) {
        // Rank 0 that comes twice cannot serve the meeting twice.
        let twice = said.contains(&format!("rank {again} came twice: process"));
        assert!(twice || again == "0" && said.contains("rank"), "{said}");
    }
}

#[test]
fn another_shape_is_refused_by_all() {
    for said in run(&[(1, &[], &["--seed", "2"])], |_| {}) {
        assert!(said.contains("the group has failed") && said.contains("wants `"), "{said}");
    }
}

#[test]
fn a_rank_that_leaves_early_is_named() {
    let said = run(&[(1, &[], &["--layers", "3"])], |_| {});
    assert_eq!(said[1], "success");
    for rank in (0..said.len()).filter(|rank| *rank != 1) {
        assert!(said[rank].contains("rank 1 has left the group, and others want `"), "{said:?}");
    }
}

#[test]
fn another_job_does_not_come_in() {
    let last = ranks()[1];
    let said = run(&[(last, &[("SLURM_JOB_ID", "other")], &[])], |_| {});
    let expected =
        format!("the group was not formed: rank {last} belongs to job `other`, this one is `no job`");
    assert!(said[last as usize].contains(&expected), "{said:?}");
    for said in &said[..last as usize] {
        assert!(said.contains(&format!("rank {last} did not come to the meeting")), "{said}");
    }
}

#[test]
fn variables_that_cannot_be_are_named() {
    for (name, value, expected) in [
        ("RANK", "three", "RANK is `three`, a number was needed"),
        ("RANK", "9", "RANK is `9`, less than 3"),
        ("WORLD_SIZE", "0", "WORLD_SIZE is `0`, at least 1 was needed"),
        (
            "FALCHION_MEETING",
            "carrier pigeon",
            "FALCHION_MEETING is `carrier pigeon`, tcp://HOST:PORT or file:PATH was needed",
        ),
    ] {
        let said = words(&end(Job::new().start(0, 3, &[(name, value)], &[]), 5));
        assert!(said.contains(expected), "{said}");
    }
    let said = words(&end(Job::new().start(0, 3, &[], &["--timeout=-1"]), 5));
    assert!(said.contains("--timeout"), "{said}");
}

#[test]
fn a_meeting_that_cannot_be_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = format!("file:{}", folder.path().join("no/such/folder/meet").display());
    let said = words(&end(Job::new().start(0, 3, &[("FALCHION_MEETING", &file)], &[]), 5));
    assert!(said.contains("rank 0 cannot write") && said.contains("No such file"), "{said}");

    let taken = std::net::TcpListener::bind(("0.0.0.0", 0)).expect("a port");
    let meeting = format!("tcp://127.0.0.1:{}", taken.local_addr().expect("bound").port());
    let said = words(&end(Job::new().start(0, 3, &[("FALCHION_MEETING", &meeting)], &[]), 5));
    assert!(said.contains("rank 0 cannot listen at port") && said.contains("in use"), "{said}");

    let said = words(&end(
        Job::new().start(1, 3, &[("FALCHION_MEETING", "tcp://no.such.host.invalid:7000")], &[]),
        30,
    ));
    let expected = format!("rank 0 was not reached within {} s: no.such.host.invalid:7000", patience());
    assert!(said.contains(&expected), "{said}");
}

/// A disk without room: a small one in memory, in a name space of its own, for which one must be root.
#[test]
fn a_full_disk_under_the_meeting_is_named() {
    let job = Job::new();
    let mount = "mount -t tmpfs -o size=4k tmpfs \"$1\" && { head -c 4096 /dev/zero > \"$1/full\" || true; } && shift && exec \"$@\"";
    let binary = env!("CARGO_BIN_EXE_falchion-parallel");
    let folder = job.folder.path().display().to_string();
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", mount, "sh", &folder, binary, "check", "--emulated", "--meeting", "3"]);
    command
        .envs([("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0")])
        .env("FALCHION_MEETING", job.meeting());
    let Ok(output) = command.output() else { return eprintln!("not run: there is no `unshare`") };
    let said = words(&output);
    if said.contains("unshare") || said.contains("mount") {
        return eprintln!("not run: {said}");
    }
    assert!(said.contains("rank 0 cannot write") && said.contains("No space left"), "{said}");
}

/// Strangers at the meeting's port do not disturb it.
#[test]
fn strangers_do_not_disturb() {
    use std::io::Write;
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = listener.local_addr().expect("bound").port();
    drop(listener);
    let meeting = format!("tcp://127.0.0.1:{port}");
    let job = Job::new();
    let start = |rank| job.start(rank, 2, &[("FALCHION_MEETING", &meeting)], &["--layers", "5"]);
    let first = start(0);
    let mut strangers = Vec::new();
    let began = Instant::now();
    while strangers.len() < 3 && began.elapsed() < Duration::from_secs(patience()) {
        if let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", port)) {
            let _ = stream.write_all([&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 40], &[]][strangers.len()]);
            strangers.push(stream);
        }
    }
    assert_eq!(strangers.len(), 3);
    for child in [first, start(1)] {
        let output = end(child, 20);
        assert!(output.status.success(), "{}", words(&output));
    }
}

/// Two ranks that take one GPU are told so. Only on cards.
#[test]
fn a_gpu_that_is_taken_twice_is_named() {
    let (Some(_), [_, last]) = (cards(), ranks()) else { return };
    for said in run(&[(last, &[("LOCAL_RANK", "0")], &[])], |_| {}) {
        assert!(said.contains(&format!("ranks 0 and {last} both take GPU")), "{said}");
    }
}

/// A library in NCCL's place, built from a line of Rust.
fn library(folder: &Path, source: &str) -> String {
    let (from, to) = (folder.join("nccl.rs"), folder.join("libnccl.so.2"));
    std::fs::write(&from, source).expect("written");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let built = Command::new(rustc)
        .args(["--crate-type", "cdylib", "--edition", "2021", "-o"])
        .arg(&to)
        .arg(&from)
        .output();
    let built = built.expect("rustc");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    to.display().to_string()
}

#[test]
fn libraries_that_cannot_work_are_named() {
    let folders = [(); 3].map(|()| tempfile::tempdir().expect("a folder"));
    let [old, part, other] = folders.each_ref().map(tempfile::TempDir::path);
    let version = |number: u32| {
        format!(
            "#[no_mangle] pub extern \"C\" fn ncclGetVersion(version: *mut i32) -> i32 {{ unsafe {{ *version = {number} }}; 0 }}"
        )
    };
    for (library, expected) in [
        ("/no/such/library.so".to_owned(), "NCCL: no library was found"),
        (library(old, &version(2_708)), "NCCL: the library's version is 2.7, 2.18 or later was needed"),
        (library(part, &version(22_605)), "NCCL: the library has no function ncclGetUniqueId"),
        (
            library(other, "#[no_mangle] pub extern \"C\" fn other() {}"),
            "NCCL: the library has no function ncclGetVersion",
        ),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_falchion-parallel"));
        command.args(["check", "--gpus", "0,1"]).env("FALCHION_NCCL", &library);
        let output = command.output().expect("runs");
        assert!(!output.status.success());
        assert!(words(&output).contains(expected), "{}", words(&output));
    }
}

/// A rank's thread that panics is lost to the others, like a process.
#[test]
fn a_thread_that_panics_ends_all() {
    let groups = falchion_parallel::Group::emulated(3).expect("a group");
    let began = Instant::now();
    let results: Vec<_> = std::thread::scope(|scope| {
        let rank = |mut group: falchion_parallel::Group| {
            assert_ne!(group.rank(), 2, "planted");
            group.barrier().map_err(|error| error.to_string())
        };
        let ranks: Vec<_> = groups.into_iter().map(|group| scope.spawn(move || rank(group))).collect();
        ranks.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    assert!(results[2].is_err(), "it panicked");
    for result in &results[..2] {
        let words = result.as_ref().expect("no panic").as_ref().expect_err("one is missing");
        assert!(words.contains("rank 2 ended"), "{words}");
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}
