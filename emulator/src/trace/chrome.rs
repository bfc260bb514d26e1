//! Writes the JSON that Perfetto and Chrome read: "Trace Event Format", with complete events and the names of
//! processes and threads. A CTA is a process, a lane of the picture is a thread.

use core::fmt::{self, Write as _};

use super::lanes::lanes;
use super::{Activity, Event, Trace};

pub(super) fn write(trace: &Trace) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = document(&mut text, trace);
    text
}

fn document(text: &mut String, trace: &Trace) -> fmt::Result {
    let note = "steps of the emulator, which are not time";
    write!(text, "{{\"otherData\":{{\"kernel\":{},\"unit\":\"{note}\"}},", Quoted(&trace.kernel))?;
    text.push_str("\"traceEvents\":[");
    let mut separator = "\n";
    let mut process = 0;
    let mut cta = None;
    for (thread, lane) in lanes(trace).into_iter().enumerate() {
        if cta != Some(lane.cta) {
            cta = Some(lane.cta);
            process += 1;
            let [x, y, z] = lane.cta;
            let name = format!("CTA ({x}, {y}, {z})");
            metadata(text, separator, "process_name", process, thread, &name)?;
            separator = ",\n";
        }
        metadata(text, separator, "thread_name", process, thread, &lane.name)?;
        write!(
            text,
            ",\n{{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":{process},\"tid\":{thread},\
             \"args\":{{\"sort_index\":{thread}}}}}"
        )?;
        lane.events.iter().try_for_each(|event| complete(text, event, process, thread))?;
    }
    text.push_str("\n]}\n");
    Ok(())
}

fn metadata(
    text: &mut String,
    separator: &str,
    what: &str,
    process: usize,
    thread: usize,
    name: &str,
) -> fmt::Result {
    write!(
        text,
        "{separator}{{\"ph\":\"M\",\"name\":\"{what}\",\"pid\":{process},\"tid\":{thread},\
         \"args\":{{\"name\":{}}}}}",
        Quoted(name)
    )
}

fn complete(text: &mut String, event: &Event, process: usize, thread: usize) -> fmt::Result {
    let stage = event.stage.map_or(String::new(), |stage| format!(" stage {stage}"));
    let name = format!("{}{stage}", event.label());
    let (start, steps) = (event.start, event.end - event.start);
    write!(
        text,
        ",\n{{\"ph\":\"X\",\"name\":{},\"cat\":\"{}\",\"pid\":{process},\"tid\":{thread},\"ts\":{start},\
         \"dur\":{steps},\"args\":{{\"scopes\":{}",
        Quoted(&name),
        event.label(),
        Quoted(&event.scopes.join(" / "))
    )?;
    if let Some(site) = &event.site {
        write!(text, ",\"site\":{}", Quoted(&site.to_string()))?;
    }
    match &event.activity {
        Activity::Run { instructions, .. } => write!(text, ",\"instructions\":{instructions}")?,
        Activity::Wait(on) => write!(text, ",\"for\":{}", Quoted(&on.to_string()))?,
        Activity::Load { bytes } | Activity::Store { bytes } => write!(text, ",\"bytes\":{bytes}")?,
        Activity::Multiply { n } => write!(text, ",\"n\":{n}")?,
    }
    text.push_str("}}");
    Ok(())
}

/// A JSON string.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for character in self.0.chars() {
            match character {
                '"' | '\\' => write!(f, "\\{character}")?,
                control if control < ' ' => write!(f, "\\u{:04x}", u32::from(control))?,
                other => f.write_char(other)?,
            }
        }
        f.write_char('"')
    }
}
