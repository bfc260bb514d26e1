//! What a file of Rust says, as plain data: its items with their lines and words, read from its syntax tree.
//!
//! A *line of code* is a line with a token on it that is no comment: blank lines, comments and documentation do not count. Items
//! under `#[cfg(test)]` are left out, with their lines.

mod reader;

use std::ops::Range;

use proc_macro2::{Delimiter, LineColumn, Span, TokenStream, TokenTree};

use reader::Reader;

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A struct, an enum, a union, a trait or an alias of a type.
    Type,
    /// A function, a method, or a function of a trait.
    Function,
    /// An `impl`, as a whole.
    Impl,
    /// A call of a macro in the place of an item.
    Call,
    /// A macro by example.
    Macro,
    /// Anything else: constants, imports, modules.
    Other,
}

/// An item of a file.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// `Name`, `function`, `Type::method`, `Trait for Type`, `Trait for Type::method`.
    pub(crate) path: String,
    pub(crate) kind: Kind,
    /// Whether it is `pub`, and not only in its crate.
    pub(crate) public: bool,
    /// The trait of an `impl Trait for Type`, or of a method of one.
    pub(crate) of_trait: Option<String>,
    /// Its first and last line, the attributes among them.
    lines: Range<usize>,
    place: Range<LineColumn>,
    /// The part of a function that says what it takes and gives.
    signature: Range<LineColumn>,
}

/// An identifier, or the text of a literal.
#[derive(Clone, Debug)]
struct Word {
    at: LineColumn,
    text: String,
    /// Whether it follows a dot: a field or a method of something.
    of: bool,
}

/// A file.
#[derive(Clone, Debug)]
pub(crate) struct Code {
    /// From the root of the repository.
    pub(crate) path: String,
    pub(crate) items: Vec<Item>,
    /// Calls of the method `expect`.
    pub(crate) expects: usize,
    /// Modules in files of their own: their names, the folders that inline modules around them add, and the path of an attribute.
    pub(crate) modules: Vec<Outside>,
    /// Whether a line, by its number, is one of code.
    lines: Vec<bool>,
    /// In the order of the text.
    words: Vec<Word>,
}

/// A module in a file of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outside {
    pub(crate) name: String,
    pub(crate) within: Vec<String>,
    pub(crate) path: Option<String>,
}

impl Code {
    /// Reads a file.
    ///
    /// # Errors
    /// Why it is no Rust.
    pub(crate) fn read(path: &str, text: &str) -> Result<Self, String> {
        let wrong = |error: &dyn std::fmt::Display, at: Span| format!("{path}:{}: {error}", at.start().line);
        let tokens: TokenStream =
            text.parse().map_err(|error: proc_macro2::LexError| wrong(&error, error.span()))?;
        let (mut lines, mut words) = (vec![false; text.lines().count() + 2], Vec::new());
        flatten(tokens.clone(), &mut lines, &mut words);
        let file: syn::File = syn::parse2(tokens).map_err(|error| wrong(&error, error.span()))?;
        let mut reader = Reader::default();
        reader.file(&file);
        let Reader { items, expects, modules, left_out, .. } = reader;
        left_out.into_iter().for_each(|of| lines[of].fill(false));
        Ok(Self { path: path.to_owned(), items, expects, modules, lines, words })
    }

    /// Its lines of code.
    pub(crate) fn lines(&self) -> usize {
        count(&self.lines)
    }

    /// The lines of code of an item.
    pub(crate) fn lines_of(&self, item: &Item) -> usize {
        count(&self.lines[item.lines.clone()])
    }

    /// The identifiers and literals of an item, in the order of its text.
    pub(crate) fn words_of(&self, item: &Item) -> impl Iterator<Item = &str> {
        self.within(item.place.clone()).map(|word| word.text.as_str())
    }

    /// The same without fields and methods of something: `x` of `x.rows`.
    pub(crate) fn stated_by(&self, item: &Item) -> impl Iterator<Item = &str> {
        self.within(item.place.clone()).filter(|word| !word.of).map(|word| word.text.as_str())
    }

    /// The identifiers and literals of what a function takes and gives.
    pub(crate) fn signature_of(&self, item: &Item) -> impl Iterator<Item = &str> {
        self.within(item.signature.clone()).map(|word| word.text.as_str())
    }

    fn within(&self, place: Range<LineColumn>) -> impl Iterator<Item = &Word> {
        let first = self.words.partition_point(|word| word.at < place.start);
        self.words[first..].iter().take_while(move |word| word.at < place.end)
    }

    /// The items with this path.
    pub(crate) fn find(&self, path: &str) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(move |item| item.path == path)
    }
}

fn count(lines: &[bool]) -> usize {
    lines.iter().filter(|line| **line).count()
}

/// Takes lines and words of tokens, without those of documentation.
fn flatten(tokens: TokenStream, lines: &mut [bool], words: &mut Vec<Word>) {
    let mut tokens = tokens.into_iter().peekable();
    // Dots before a token: one is a field's or a method's, two are a range.
    let mut dots = 0;
    while let Some(token) = tokens.next() {
        let of = dots == 1;
        dots = if is_mark(&token, '.') { dots + 1 } else { 0 };
        match token {
            TokenTree::Punct(mark) if mark.as_char() == '#' => {
                let inward = tokens.next_if(|next| is_mark(next, '!'));
                if tokens.next_if(is_documentation).is_none() {
                    add(lines, mark.span());
                    if let Some(mark) = inward {
                        add(lines, mark.span());
                    }
                }
            }
            TokenTree::Punct(mark) => {
                add(lines, mark.span());
            }
            TokenTree::Ident(name) => {
                let at = add(lines, name.span());
                words.push(Word { at, text: name.to_string(), of });
            }
            TokenTree::Literal(literal) => {
                let (text, span) = (literal.to_string(), literal.span());
                let at = add(lines, span);
                // A text of several lines.
                if text.contains('\n') {
                    lines[at.line..=span.end().line].fill(true);
                }
                let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(&text);
                words.push(Word { at, text: text.to_owned(), of: false });
            }
            TokenTree::Group(group) => {
                if group.delimiter() != Delimiter::None {
                    add(lines, group.span_open());
                    add(lines, group.span_close());
                }
                flatten(group.stream(), lines, words);
            }
        }
    }
}

/// Notes the line at which a token begins. Returns its place.
fn add(lines: &mut [bool], span: Span) -> LineColumn {
    let at = span.start();
    lines[at.line] = true;
    at
}

fn is_mark(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == mark)
}

/// Whether this is the `[doc = ..]` of a comment.
fn is_documentation(token: &TokenTree) -> bool {
    let TokenTree::Group(group) = token else { return false };
    let mut inner = group.stream().into_iter();
    let named = matches!(inner.next(), Some(TokenTree::Ident(name)) if name == "doc");
    named && inner.next().is_some_and(|token| is_mark(&token, '='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_have_paths() {
        let text = "pub struct A { a: u32 }\npub(crate) enum B {}\nimpl<T> A<T> {\n    pub fn new() {}\n    fn own() {}\n}\n\
                    impl Trait<u32> for &A<u32> {\n    fn of() {}\n}\npub trait C {\n    fn given() {}\n}\n\
                    pub fn free() {\n    struct Inner;\n    impl Inner {\n        fn inner() {}\n    }\n}\n\
                    mod m {\n    pub fn within() {}\n}\nmade! { x }\nmacro_rules! made { () => {} }";
        let code = Code::read("a.rs", text).expect("Rust");
        let found: Vec<_> =
            code.items.iter().map(|item| (item.path.as_str(), item.kind, item.public)).collect();
        for (path, kind, public) in [
            ("A", Kind::Type, true),
            ("B", Kind::Type, false),
            ("A::new", Kind::Function, true),
            ("A::own", Kind::Function, false),
            ("Trait for A", Kind::Impl, false),
            ("Trait for A::of", Kind::Function, false),
            ("C", Kind::Type, true),
            ("C::given", Kind::Function, false),
            ("free", Kind::Function, true),
            ("Inner", Kind::Type, false),
            ("Inner::inner", Kind::Function, false),
            ("within", Kind::Function, true),
            ("made", Kind::Call, false),
            ("made", Kind::Macro, false),
        ] {
            assert!(found.contains(&(path, kind, public)), "{path}: {found:?}");
        }
        let of = code.find("Trait for A::of").next().and_then(|item| item.of_trait.clone());
        assert_eq!(of.as_deref(), Some("Trait"));
        let error = Code::read("a.rs", "fn f() {\n    let x = ;\n}").expect_err("no Rust");
        assert!(error.starts_with("a.rs:2: "), "{error}");
    }

    #[test]
    fn lines_and_words_are_those_of_code() {
        for (why, text, lines, words) in [
            ("blank lines and comments", "// a\n\n/* b\n c */\nfn f() {}\n", 1, vec!["fn", "f"]),
            ("documentation", "//! a\n/// b\n#[doc = \"c\"]\nfn f() {}", 1, vec!["fn", "f"]),
            ("attributes", "#![x]\n#[inline]\nfn f() {\n}", 4, vec!["x", "inline", "fn", "f"]),
            ("texts of several lines", "const A: &str = \"a\n\nb\";", 3, vec!["const", "A", "str", "a\n\nb"]),
            ("tests", "fn f() {}\n#[test]\nfn t() {\n}\n#[cfg(test)]\nmod tests;", 1, vec!["fn", "f"]),
        ] {
            let code = Code::read("a.rs", text).expect("Rust");
            assert_eq!(code.lines(), lines, "{why}");
            let found: Vec<&str> = code.words.iter().map(|word| word.text.as_str()).collect();
            assert!(found.starts_with(&words), "{why}: {found:?}");
        }
    }

    #[test]
    fn modules_in_files_of_their_own() {
        let text = "mod a;\nmod inner {\n    mod b;\n}\n#[path = \"c/d.rs\"]\nmod d;\n#[cfg(test)]\nmod tests;\n#[cfg(unix)]\nmod e;";
        let code = Code::read("a.rs", text).expect("Rust");
        let found: Vec<_> = code
            .modules
            .iter()
            .map(|of| (of.name.as_str(), of.within.join("/"), of.path.as_deref()))
            .collect();
        let own = |name: &'static str| (name, String::new(), None);
        let want =
            [own("a"), ("b", "inner".to_owned(), None), ("d", String::new(), Some("c/d.rs")), own("e")];
        assert_eq!(found, want);
    }
}
