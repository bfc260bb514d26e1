//! The pages that `falchion explore` writes: their content, and their reaction to clicks.

#[path = "../kernel/tests/support/skipped.rs"]
mod skipped;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};
use std::{fs, thread};

use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_falchion");

/// Kernels whose pages show different things, and the arguments for each.
const KERNELS: &[(&str, &[&str])] = &[
    ("plain", &["--kernel", "128x256-direct-bf16-kk"]),
    ("pingpong", &["--kernel", "128x128-pingpong-bf16-kk"]),
    ("a cluster", &["--kernel", "tile=128x192x64 cluster=2x2"]),
    ("Stream-K", &["--kernel", "scheduler=stream-k", "--m", "1000", "--n", "3000", "--k", "2048"]),
    (
        "slices of tiles",
        &[
            "--kernel",
            "tile=128x128x64 scheduler=narrow-tail splits=2",
            "--m",
            "1152",
            "--n",
            "1280",
            "--sms",
            "40",
        ],
    ),
    (
        "slices in a cluster, operands exchanged",
        &[
            "--kernel",
            "tile=128x128x64 cluster=1x2 swap=yes scheduler=narrow-tail splits=2",
            "--m",
            "2304",
            "--n",
            "1280",
            "--sms",
            "80",
        ],
    ),
    ("groups of rows", &["--kernel", "ragged-128x128-unaligned-bf16-kk", "--rows", "300,0,17,129"]),
    ("several products", &["--kernel", "grouped-128x256-bf16-kk"]),
    (
        "fp8 with scaled blocks",
        &["--kernel", "dtype=e4m3 tile=128x128x128 scale-a=1x128 scale-b=128x128 out=bf16"],
    ),
    ("weights in four bits", &["--kernel", "weights-b=s4 swap=yes"]),
    ("a sparse operand", &["--kernel", "sparse=a"]),
    ("mma.sync", &["--kernel", "multiply=mma.sync"]),
    ("plain instructions", &["--kernel", "simt-f32-kk"]),
    ("operands exchanged", &["--kernel", "64x16-swap-bf16-kk"]),
    ("a fused epilogue", &["--kernel", "128x128-pingpong-bias-gelu-bf16-kk"]),
];

/// The pages without a kernel of the caller's.
const OTHERS: [(&str, &[&str]); 3] =
    [("the gallery", &[]), ("the tour", &["--tour"]), ("attention", &ATTENTION)];

/// A kernel of another family.
const ATTENTION: [&str; 6] =
    ["--family", "attention", "--problem", "1x1x512 mask=causal", "--kernel", "tile=128x64 mask=causal"];

fn run(command: &str, arguments: &[&str]) -> Output {
    Command::new(BINARY).arg(command).args(arguments).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The page for these arguments, from standard output. It is made once, however many tests read it.
fn page(arguments: &[&str]) -> &'static str {
    static MADE: Mutex<BTreeMap<String, &OnceLock<String>>> = Mutex::new(BTreeMap::new());
    let made =
        *MADE.lock().expect("a map").entry(arguments.join(" ")).or_insert_with(|| Box::leak(Box::default()));
    made.get_or_init(|| {
        let output = run("explore", &[arguments, &["-o", "-"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    })
}

/// The JSON data of the page.
fn data(page: &str) -> Value {
    let (_, rest) = page.split_once(r#"<script type="application/json" id="data">"#).expect("data");
    let (json, _) = rest.split_once("</script>").expect("an end");
    serde_json::from_str(json).expect("JSON")
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value} is no list"))
}

#[test]
fn pages_are_one_file() {
    for (name, arguments) in KERNELS.iter().copied().chain(OTHERS) {
        let page = page(arguments);
        for needed in ["<!doctype html>", "</html>", r#"<meta charset="utf-8">"#] {
            assert_eq!(page.matches(needed).count(), 1, "{name}: {needed}");
        }
        // The address of the SVG namespace is only a name: nothing is loaded from it.
        let addresses = page.replace("http://www.w3.org/2000/svg", "");
        for loads in [
            "http:",
            "https:",
            "src=",
            "@import",
            "url(",
            "fetch(",
            "XMLHttpRequest",
            "import(",
            "WebSocket",
            "@DATA@",
            "@TITLE@",
        ] {
            assert!(!addresses.contains(loads), "{name}: the page has `{loads}`");
        }
        assert_eq!(page.matches("href=").count(), 2, "{name}: an empty icon, and a link within the page");
        data(page);
    }
}

#[test]
fn pages_agree_with_the_plan() {
    for &(name, arguments) in KERNELS {
        let kernel = &data(page(arguments))["kernel"];
        let printed = run("plan", &arguments[..2]);
        let printed = text(&printed.stdout);
        for fact in list(&kernel["overview"]["traits"]) {
            let [what, value, of] = [0, 1, 2].map(|at| fact[at].as_str().expect("words"));
            let row = |line: &&str| line.starts_with(what) && line.contains(value) && line.ends_with(of);
            assert!(printed.lines().any(|line| row(&line)), "{name}: {what} {value} {of}\n{printed}");
        }
        // Memory: regions are consecutive, and end where the plan says.
        let memory = &kernel["memory"];
        let mut end = 0;
        for part in list(&memory["parts"]) {
            let offset = number(&part["offset"]);
            assert!(offset >= end, "{name}: {part} begins before byte {end}");
            end = offset + number(&part["bytes"]);
        }
        assert!(end <= number(&memory["bytes"]), "{name}: parts end at {end}, {}", memory["bytes"]);
        assert_eq!(memory["bytes"], kernel["overview"]["shared_bytes"], "{name}");
        // Barriers are in shared memory, at distinct addresses.
        let mut barriers: Vec<u64> =
            list(&memory["barriers"]).iter().map(|one| number(&one["offset"])).collect();
        barriers.sort_unstable();
        assert!(barriers.windows(2).all(|pair| pair[0] + 8 <= pair[1]), "{name}: {barriers:?}");
        // A swizzle is a permutation: every chunk of a tile has a place, and no two chunks share one.
        for tile in list(&memory["tiles"]) {
            let chunks = list(&tile["chunks"]).iter().flat_map(list).map(number);
            let mut places: Vec<u64> = chunks.collect();
            let count = places.len();
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), count, "{name}: two chunks of {} in one place", tile["name"]);
            let inside = places.last().is_some_and(|last| last + 16 <= number(&tile["bytes"]));
            assert!(inside, "{name}: {} ends at {:?}", tile["name"], places.last());
        }
    }
}

#[test]
fn orders_cover_the_output() {
    for &(name, arguments) in KERNELS {
        let order = &data(page(arguments))["kernel"]["order"];
        let [rows, columns] = [0, 1].map(|axis| number(&order["grid"][axis]));
        assert!(order["cut"].is_null(), "{name}: all spans fit");
        // Of each tile: the sum of k-tiles times columns, and the first columns of its slices.
        let mut summed = HashMap::<[u64; 2], (u64, Vec<u64>)>::new();
        let mut extent = 0;
        for span in list(&order["spans"]).iter().filter(|span| number(&span[0]) == 0) {
            let [row, column, begin, end] = [1, 2, 3, 4].map(|at| number(&span[at]));
            let [first, last] = [10, 11].map(|at| number(&span[at]));
            assert!(row < rows && column < columns && begin < end && first < last, "{name}: {span}");
            let (sum, slices) = summed.entry([row, column]).or_default();
            *sum += (end - begin) * (last - first);
            slices.push(first);
            extent = extent.max(last);
        }
        assert_eq!(summed.len() as u64, rows * columns, "{name}: every tile is computed");
        if list(&order["products"]).len() == 1 {
            let k_tiles = number(&order["k_tiles"]);
            let all = |(sum, _): &(u64, Vec<u64>)| *sum == k_tiles * extent;
            assert!(summed.values().all(all), "{name}: each over {k_tiles} k-tiles, with {extent} columns");
        }
        let sliced = &order["sliced"];
        assert_eq!(name.starts_with("slices"), !sliced.is_null(), "{name}: {sliced}");
        if !sliced.is_null() {
            assert_eq!(number(&sliced["extent"]), extent, "{name}");
            // A wave of 40 workers takes 80 of 90 tiles; ten are in two slices each.
            let mut in_slices =
                summed.values_mut().filter(|(_, slices)| slices.len() > 1).map(|(_, slices)| {
                    slices.sort_unstable();
                    &slices[..]
                });
            assert!(in_slices.by_ref().take(10).all(|slices| slices == [0, 64]), "{name}");
            assert_eq!(in_slices.count(), 0, "{name}");
        }
    }
}

#[test]
fn runs_are_recorded_or_say_why_not() {
    for &(name, arguments) in KERNELS {
        let kernel = &data(page(arguments))["kernel"];
        let run = &kernel["run"];
        if run.is_null() {
            assert!(["groups of rows", "several products"].contains(&name), "{name} has no run");
            assert!(kernel["run_note"].as_str().is_some_and(|note| note.contains("not recorded")), "{name}");
            continue;
        }
        assert!(run["trap"].is_null(), "{name}: {}", run["trap"]);
        let (steps, lanes, words) =
            (number(&run["steps"]), list(&run["lanes"]).len(), list(&run["words"]).len());
        for event in list(&run["events"]) {
            let event: Vec<i64> = list(event).iter().map(|one| one.as_i64().expect("a number")).collect();
            assert!((0..lanes as i64).contains(&event[0]), "{name}: {event:?}");
            assert!((0..words as i64).contains(&event[1]), "{name}: {event:?}");
            assert!(event[2] <= event[3] && event[3] as u64 <= steps, "{name}: {event:?} in {steps} steps");
        }
        for phase in list(&run["phases"]) {
            assert!(list(&phase[2]).is_sorted_by_key(number), "{name}: {phase}");
        }
    }
}

/// Of 4 x 8 blocks 20 lie below the diagonal and are computed, 8 of them masked. Each of two warpgroups multiplies once for S
/// of 64 keys, and once for O of 128 columns.
#[test]
fn attention_computes_the_blocks_that_it_shows() {
    let family = &data(page(&ATTENTION))["family"];
    let blocks = &family["blocks"];
    let needed: Vec<u64> =
        list(&blocks["needed"]).iter().flat_map(|row| list(row).iter().map(number)).collect();
    let count = |kind: u64| needed.iter().filter(|&&one| one == kind).count();
    assert_eq!((needed.len(), count(0), count(1), count(2)), (32, 12, 8, 12));
    let counted = |what: &str| {
        let of = list(&family["statements"]).iter().filter(|row| row[0].as_str() == Some(what));
        of.map(|row| number(&row[1])).sum::<u64>()
    };
    assert_eq!((counted("wgmma, 64 x 64 sums"), counted("wgmma, 64 x 128 sums")), (20 * 2, 20 * 2));
    assert!(list(&blocks["products"]).len() == 2 && family["run"]["trap"].is_null());
    assert!(blocks["turns"].as_str().is_some_and(|turns| turns.contains("take turns")), "{blocks}");
}

/// The arguments of each row are refused with a message that has all words of the row, and write nothing.
#[test]
fn refusals_name_what_is_wrong() {
    let folder = folder("refusals");
    let file = folder.join("page.html");
    let file = file.to_str().expect("a name");
    let huge = "4294967295";
    let rows: [(&str, &[&str], &[&str]); 14] = [
        (
            "an unknown kernel",
            &["--kernel", "128x256-direct-bf16-xx"],
            &["`128x256-direct-bf16-xx`", "falchion configs"],
        ),
        ("an illegal spec", &["--kernel", "tile=100x256x64"], &["100", "tile"]),
        ("an unknown word of a spec", &["--kernel", "sparse=a x"], &["`x`", "key=value"]),
        ("two kernels", &["--kernel", "128x256-direct-bf16-kk", "--kernel", ""], &["multiple times"]),
        (
            "rows without groups",
            &["--kernel", "128x256-direct-bf16-kk", "--rows", "3,4"],
            &["--rows cannot be used with kernel 128x256-direct-bf16-kk, which computes one GEMM"],
        ),
        (
            "one extent for groups",
            &["--kernel", "ragged-128x256-bf16-kk", "--m", "5"],
            &["--m cannot be used with kernel ragged-128x256-bf16-kk, which computes groups of rows"],
        ),
        (
            "no rows at all",
            &["--kernel", "128x256-direct-bf16-kk", "--m", "0"],
            &["'0' for '--m <M>'", "from 1 to"],
        ),
        (
            "absurd sizes",
            &["--kernel", "128x256-direct-bf16-kk", "--m", huge, "--n", huge, "--k", huge],
            &["4294967295", "2147483648"],
        ),
        (
            "too many tiles",
            &["--kernel", "128x256-direct-bf16-kk", "--m", "1000000", "--n", "1000000"],
            &["--m 1000000", "at most"],
        ),
        (
            "an absurd run",
            &["--kernel", "128x256-direct-bf16-kk", "--run", "99999x99999x99999"],
            &["--run", "at most 65536"],
        ),
        (
            "a run that is no shape",
            &["--kernel", "128x256-direct-bf16-kk", "--run", "64x64"],
            &["--run", "64x64"],
        ),
        (
            "no multiprocessor",
            &["--kernel", "128x256-direct-bf16-kk", "--sms", "0"],
            &["'--sms <N>'", "1..=1024"],
        ),
        ("a tour of a kernel", &["--tour", "--kernel", ""], &["--tour", "--kernel"]),
        ("sizes of no kernel", &["--m", "64"], &["--m cannot be used with a gallery", "--kernel was needed"]),
    ];
    for (name, arguments, words) in rows {
        let output = run("explore", &[arguments, &["-o", file]].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {said}");
        assert!(words.iter().all(|word| said.contains(word)), "{name}: {words:?} in\n{said}");
        assert!(!Path::new(file).exists(), "{name}: a page was written");
    }
    let nowhere = folder.join("missing").join("page.html");
    let nowhere = nowhere.to_str().expect("a name");
    let output = run("explore", &["--kernel", "128x256-direct-bf16-kk", "-o", nowhere]);
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("cannot write") && said.contains(nowhere), "{said}");
    fs::remove_dir_all(&folder).expect("a folder");
}

/// Without `-o` the page is named after the kernel, and is in the current folder.
#[test]
fn files_are_named_after_kernels() {
    let folder = folder("names");
    for (arguments, file) in [
        (&["--kernel", "64x64-direct-bf16-kk"] as &[&str], "64x64-direct-bf16-kk.html"),
        (&["--kernel", ""], "gemm_bf16_kk_128x256x64_coop2_linear_tma_persistent_along_m_by_8.html"),
        (&[], "layouts.html"),
        (&["--tour"], "tour.html"),
    ] {
        let output = Command::new(BINARY).arg("explore").args(arguments).current_dir(&folder).output();
        let said = text(&output.expect("the binary runs").stdout);
        assert!(said.contains(file) && folder.join(file).is_file(), "{arguments:?}: {said}");
    }
    fs::remove_dir_all(&folder).expect("a folder");
}

/// An empty folder of this process.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("falchion-explore-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// A headless browser: the one that `CHROMIUM` names, or one of the usual names.
fn browser() -> Option<String> {
    let named = std::env::var("CHROMIUM").ok().filter(|path| !path.is_empty());
    let usual = ["chromium", "chromium-browser", "google-chrome"].map(str::to_owned);
    let runs = |path: &String| {
        let quiet = Command::new(path).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        quiet.is_ok_and(|status| status.success())
    };
    if let Some(path) = &named {
        assert!(runs(path), "CHROMIUM names {path}, which does not run");
    }
    named.or_else(|| usual.into_iter().find(runs))
}

/// Time limit for clicking through a page. On an idle machine it takes a few seconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// The errors that `click.js` found in a page at a window size, and the number of things it checked. A server
/// of this process serves the page and receives the result.
fn clicked(browser: &str, folder: &Path, page: &str, [width, height]: [u32; 2]) -> (u64, Vec<String>) {
    let watch = format!("<script>{}</script>\n<style>", include_str!("explore/watch.js"));
    let click = format!("<script>{}</script>\n</body>", include_str!("explore/click.js"));
    let page = page.replacen("<style>", &watch, 1).replacen("</body>", &click, 1);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("a port");
    let profile = folder.join(format!("profile-{}", address.port()));
    let mut child = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-port=0"])
        .arg(format!("--window-size={width},{height}"))
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("http://{address}/"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the browser runs");
    let verdict = verdict(&listener, &page);
    child.kill().expect("it runs until now");
    child.wait().expect("it ends");
    let verdict = verdict.expect("the clicks come to an end");
    let mut lines = verdict.lines();
    let checks = lines.next().and_then(|line| line.strip_suffix(" checks")?.parse().ok()).expect("a count");
    (checks, lines.map(str::to_owned).collect())
}

/// Serves the page until the browser posts the result.
fn verdict(listener: &TcpListener, page: &str) -> io::Result<String> {
    listener.set_nonblocking(true)?;
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let mut stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(10));
                continue;
            }
            Err(error) => return Err(error),
        };
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        // A browser may open spare connections that send nothing.
        let Ok(request) = request(&mut stream) else { continue };
        let body = if request.starts_with("GET / ") { page } else { "" };
        let length = body.len();
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )?;
        if let Some((head, verdict)) =
            request.split_once("\r\n\r\n").filter(|_| request.starts_with("POST /verdict "))
        {
            assert!(head.contains("HTTP/1.1"), "{head}");
            return Ok(verdict.to_owned());
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// Reads a request with its body.
fn request(stream: &mut TcpStream) -> io::Result<String> {
    let (mut reader, mut head, mut length) = (BufReader::new(stream), String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(count) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = count.trim().parse().unwrap_or(0);
        }
        head += &line;
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(head + &String::from_utf8_lossy(&body))
}

/// Clicks through pages, four at once: a page mostly waits for the next frame.
fn at_once<T: Copy + Sync>(pages: &[T], one: &(impl Fn(T) + Sync)) {
    thread::scope(|scope| {
        for some in pages.chunks(pages.len().div_ceil(4)) {
            scope.spawn(|| some.iter().copied().for_each(one));
        }
    });
}

/// The windows in which pages are clicked through.
const WINDOWS: [[u32; 2]; 2] = [[1440, 900], [600, 1000]];

/// Every page is clicked through in one of the windows, in turns; with `cargo xtask test --long` in both.
#[test]
fn pages_are_clicked_through() {
    let Some(browser) = browser() else {
        return skipped::skipped("browser: chromium, or what CHROMIUM names");
    };
    let folder = folder("clicks");
    let long = std::env::var_os("FALCHION_LONG").is_some();
    let one = |(i, (name, arguments)): (usize, (&str, &[&str]))| {
        for size in WINDOWS.into_iter().cycle().skip(i).take(if long { 2 } else { 1 }) {
            let (checks, wrong) = clicked(&browser, &folder, page(arguments), size);
            assert!(wrong.is_empty(), "{name} at {size:?}:\n{}", wrong.join("\n"));
            assert!(checks > 50, "{name} at {size:?}: {checks} checks");
        }
    };
    at_once(&KERNELS.iter().copied().chain(OTHERS).enumerate().collect::<Vec<_>>(), &one);
    fs::remove_dir_all(&folder).expect("a folder");
}

/// The same clicks must find the fault in a faulty page.
#[test]
fn clicks_find_broken_pages() {
    let Some(browser) = browser() else {
        return skipped::skipped("browser: chromium, or what CHROMIUM names");
    };
    let folder = folder("faults");
    let good = page(&["--kernel", "64x64-direct-bf16-kk"]);
    let faults = [
        ("a script that throws", "start();\n})();", "start();\nnull.x;\n})();", "error: "),
        ("a word to the console", "start();\n})();", "start();\nconsole.error(1);\n})();", "console.error"),
        (
            "a step that is skipped",
            "edges.find((edge) => edge > step)",
            "edges.find((edge) => edge > step + 9)",
            "was due",
        ),
        (
            "a swizzle that does nothing",
            "if (swizzle) return tile.chunks",
            "if (false) return tile.chunks",
            "without the swizzle",
        ),
        ("text too pale", "--soft: #566273", "--soft: #b0b8c4", "contrast"),
        ("a section too wide", ".card { background:", ".card { width: 3000px; background:", "pixels wide"),
        (
            "a key that is deaf",
            r#"event.key === "End") { set(event.key"#,
            r#"event.key === "Ende") { set(event.key"#,
            "End does not go",
        ),
    ];
    let one = |(name, from, to, found): (&str, &str, &str, &str)| {
        assert!(good.contains(from), "{name}");
        let (_, wrong) = clicked(&browser, &folder, &good.replace(from, to), WINDOWS[0]);
        assert!(wrong.iter().any(|line| line.contains(found)), "{name}: {wrong:?}");
    };
    at_once(&faults, &one);
    fs::remove_dir_all(&folder).expect("a folder");
}

/// The tour's choices are kernels, their orders cover the output, and their runs end well.
#[test]
fn the_tour_has_seven_stops() {
    let tour = &data(page(&["--tour"]))["tour"];
    let ids: Vec<&str> = list(&tour["stops"]).iter().filter_map(|stop| stop["id"].as_str()).collect();
    assert_eq!(ids, ["raster", "card", "wgmma", "barriers", "cluster", "schedule", "node"]);
    for choice in list(&tour["stops"]).iter().flat_map(|stop| list(&stop["choices"])) {
        let sections = &choice["sections"];
        if let Some(run) = sections.get("run") {
            assert!(run["trap"].is_null() && run["cut"].is_null(), "{}: {}", choice["spec"], run["trap"]);
        }
        if let Some(order) = sections.get("order") {
            let tiles: BTreeSet<_> =
                list(&order["spans"]).iter().map(|span| [&span[1], &span[2]].map(number)).collect();
            let grid = [0, 1].map(|axis| number(&order["grid"][axis]));
            assert_eq!(tiles.len() as u64, grid[0] * grid[1], "{}", choice["spec"]);
        }
    }
    for part in list(&tour["node"]["shapes"]).iter().flat_map(|shape| list(&shape["ways"])) {
        let part = list(&part["parts"]);
        assert!(part.iter().all(|part| part["microseconds"].as_f64().is_some_and(|time| time > 0.0)));
    }
    // The last stop says which layers exchange, and shows what was measured of them: the lines of the record.
    let node = &tour["stops"][6]["says"];
    assert!(node.as_str().is_some_and(|says| says.contains("`falchion-parallel` has such layers")), "{node}");
    let record = include_str!("../src/cli/explore/node.jsonl");
    assert_eq!(list(&tour["node"]["measured"]).len(), record.lines().count());
    for line in list(&tour["node"]["measured"]) {
        assert!(
            line["command"].as_str().is_some_and(|command| command.starts_with("bench --gpus")),
            "{line}"
        );
        assert!(line["ours"].as_f64() > line["collective"].as_f64(), "{line}");
    }
}
