//! Writes the page: a template, a style sheet, scripts, and the data as JSON.

use serde_json::{Value, json};

const TEMPLATE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");

/// In order of dependency.
const SCRIPTS: [&str; 11] = [
    include_str!("page/core.js"),
    include_str!("page/layout.js"),
    include_str!("page/overview.js"),
    include_str!("page/memory.js"),
    include_str!("page/multiply.js"),
    include_str!("page/order.js"),
    include_str!("page/cluster.js"),
    include_str!("page/timeline.js"),
    include_str!("page/gallery.js"),
    include_str!("page/tour.js"),
    include_str!("page/family.js"),
];

/// The page of a subject: a kernel, one of another family, a gallery or a tour.
pub fn document(title: &str, (kind, subject): (&str, Value)) -> String {
    let json = json!({ "title": title, "version": env!("CARGO_PKG_VERSION"), kind: subject }).to_string();
    // The data is inserted last, so that nothing is replaced inside it.
    TEMPLATE
        .replace("@TITLE@", &escaped(title))
        .replace("@STYLE@", STYLE)
        .replace("@SCRIPT@", &SCRIPTS.join("\n"))
        .replace("@DATA@", &for_script(&json))
}

/// Escapes JSON so that an HTML parser finds neither the end of a script nor a comment in it.
fn for_script(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                text.push_str(&format!("\\u{:04x}", u32::from(character)));
            }
            other => text.push(other),
        }
    }
    text
}

/// Escapes text between tags.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::{escaped, for_script};

    #[test]
    fn data_never_ends_its_script() {
        let text = "</script><!-- & \u{2028}";
        let json = serde_json::to_string(text).expect("a string");
        let safe = for_script(&json);
        assert_eq!(safe, "\"\\u003c/script\\u003e\\u003c!-- \\u0026 \\u2028\"");
        assert_eq!(serde_json::from_str::<String>(&safe).expect("JSON"), text);
        assert_eq!(escaped("a<b>&c"), "a&lt;b&gt;&amp;c");
    }
}
