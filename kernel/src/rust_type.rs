//! A kernel's type as Rust source.
//!
//! The text is the compiler's own name of the type, shortened: paths are removed, and numbers are written
//! with the names that `typenum` exports. So the text and the type always agree. `tests/refusals` compiles
//! the text of every catalogue kernel as well.

/// The text of a type, with the names that its crates export.
pub(crate) fn of<C>() -> String {
    shortened(core::any::type_name::<C>())
}

/// A type's name without paths, and with numbers in place of `typenum`'s bits.
pub(crate) fn shortened(name: &str) -> String {
    let mut parser = Parser { rest: name };
    let short = parser.tree().map(|tree| tree.text());
    match short {
        Some(short) if parser.rest.is_empty() => short,
        // Not a form of name that current compilers write: return it unchanged.
        _ => name.to_owned(),
    }
}

/// The last name of a path, and its arguments.
struct Tree<'a> {
    name: &'a str,
    arguments: Vec<Tree<'a>>,
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    /// Parses `path::to::Name` or `path::to::Name<argument, …>`. Tuples have no name.
    fn tree(&mut self) -> Option<Tree<'a>> {
        let end = self.rest.find(['<', '>', ',', '(', ')', '[', ' ']).unwrap_or(self.rest.len());
        let (path, rest) = self.rest.split_at(end);
        self.rest = rest;
        let name = path.rsplit("::").next().unwrap_or(path);
        let close = match self.rest.chars().next() {
            Some('<') => '>',
            Some('(') => ')',
            _ => return (!name.is_empty()).then_some(Tree { name, arguments: Vec::new() }),
        };
        let mut arguments = Vec::new();
        self.rest = &self.rest[1..];
        while !self.rest.starts_with(close) {
            arguments.push(self.tree()?);
            self.rest = self.rest.strip_prefix(", ").unwrap_or(self.rest);
        }
        self.rest = &self.rest[1..];
        Some(Tree { name, arguments })
    }
}

impl Tree<'_> {
    fn text(&self) -> String {
        if let Some(number) = self.number() {
            return format!("U{number}");
        }
        let arguments: Vec<String> = self.arguments.iter().map(Tree::text).collect();
        match (self.name, arguments.join(", ")) {
            ("", arguments) => format!("({arguments})"),
            (name, arguments) if arguments.is_empty() => name.to_owned(),
            (name, arguments) => format!("{name}<{arguments}>"),
        }
    }

    /// The number of a `typenum` type: `UInt<UInt<UTerm, B1>, B0>` is 2.
    fn number(&self) -> Option<u64> {
        match (self.name, &self.arguments[..]) {
            ("UTerm", []) => Some(0),
            ("UInt", [high, low]) => {
                let bit = match low.name {
                    "B0" => 0,
                    "B1" => 1,
                    _ => return None,
                };
                high.number()?.checked_mul(2)?.checked_add(bit)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use collective::{Cluster, Cooperative, Tile};
    use typenum::{U1, U2, U64, U128, U256};

    use super::{of, shortened};

    #[test]
    fn names_are_what_one_writes() {
        assert_eq!(of::<u32>(), "u32");
        assert_eq!(of::<half::bf16>(), "bf16");
        assert_eq!(of::<Tile<U128, U256, U64>>(), "Tile<U128, U256, U64>");
        assert_eq!(of::<(U1, Tile<U2, U2, U1>)>(), "(U1, Tile<U2, U2, U1>)");
        let roles = of::<Cooperative<U2, Cluster<U2, U1>>>();
        assert!(roles.starts_with("Cooperative<U2, Cluster<U2, U1>"), "{roles}");
    }

    #[test]
    fn what_is_no_type_stays_as_it_is() {
        for name in ["", "a::B<", "a::B<c::D", "a::B>", "[a::B; 3]", "dyn a::B"] {
            assert_eq!(shortened(name), name);
        }
    }
}
