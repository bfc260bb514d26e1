//! What stands outside of functions, and how variables, parameters and functions are declared.

use super::Parser;
use crate::read::error::{At, Read};
use crate::read::lex::{Kind, Number};
use crate::read::syntax::{Directive, Function, Initial, Name, Space, Text, Variable};

/// What says where a name is defined and who may use it.
const LINKING: [&str; 4] = ["extern", "visible", "weak", "common"];

impl<'t> Parser<'_, 't> {
    /// A directive of a module.
    pub(super) fn declaration(&mut self, text: &mut Text<'t>) -> Read<()> {
        let mut external = false;
        while let Kind::Dot(word) = self.peek().kind {
            if !LINKING.contains(&word) {
                break;
            }
            external |= word == "extern";
            self.next();
        }
        let token = self.peek();
        match token.kind {
            Kind::Dot("address_size") => {
                self.next();
                let bits = self.unsigned("64 bits")?;
                if bits == 64 {
                    Ok(())
                } else {
                    token.at.wrong(format!("addresses of {bits} bits, not of 64"))
                }
            }
            Kind::Dot("entry" | "func") => {
                text.functions.push(self.function()?);
                Ok(())
            }
            Kind::Dot("file") => self.file(text),
            Kind::Dot("section") => self.section(),
            Kind::Dot("loc") => self.line().map(|_| ()),
            Kind::Dot("pragma" | "alias") => self.until_semicolon(),
            Kind::Dot("managed" | "attribute" | "global" | "const" | "shared") => {
                let variables = self.variables(external)?;
                text.variables.extend(variables);
                Ok(())
            }
            // Debug data of older compilers, a line each.
            Kind::Sign('@') => {
                let start = self.next().at;
                self.dwarf(start)
            }
            Kind::Sign(';') => {
                self.next();
                Ok(())
            }
            _ => self.unexpected("a variable, a function or a directive of a module was needed"),
        }
    }

    fn file(&mut self, text: &mut Text<'t>) -> Read<()> {
        self.next();
        let number = self.unsigned("the number of a file")?;
        let Kind::Text(name) = self.peek().kind else {
            return self.unexpected("the name of a file was needed");
        };
        self.next();
        while self.takes(',') {
            self.unsigned("the time or the size of a file")?;
        }
        text.files.push((number, name));
        Ok(())
    }

    /// Skips a section of debug data.
    fn section(&mut self) -> Read<()> {
        let start = self.next().at;
        while !self.takes('{') {
            if self.next().kind == Kind::End {
                return start.wrong("the section that begins here has no `{`");
            }
        }
        let mut open = 1;
        while open > 0 {
            match self.next().kind {
                Kind::Sign('{') => open += 1,
                Kind::Sign('}') => open -= 1,
                Kind::End => return start.wrong("the section that begins here has no `}`"),
                Kind::Word | Kind::Dot(_) | Kind::Number(_) | Kind::Text(_) | Kind::Sign(_) => {}
            }
        }
        Ok(())
    }

    fn dwarf(&mut self, start: At) -> Read<()> {
        if !self.takes('@') || self.next().text != "DWARF" {
            return start.wrong("`@` outside of a function: only `@@DWARF` stands there");
        }
        while !matches!(self.peek().kind, Kind::Sign('@') | Kind::End)
            && !matches!(self.peek().kind, Kind::Dot(word) if word == "entry" || word == "func" || LINKING.contains(&word))
        {
            self.next();
        }
        Ok(())
    }

    pub(super) fn until_semicolon(&mut self) -> Read<()> {
        let start = self.next().at;
        loop {
            match self.next().kind {
                Kind::Sign(';') => return Ok(()),
                Kind::End => return start.wrong("what begins here has no `;`"),
                Kind::Word | Kind::Dot(_) | Kind::Number(_) | Kind::Text(_) | Kind::Sign(_) => {}
            }
        }
    }

    // ---- functions ----

    fn function(&mut self) -> Read<Function<'t>> {
        let entry = self.takes_dot("entry");
        if !entry {
            self.next();
        }
        self.attribute()?;
        let returns = if self.is('(') { self.params()? } else { Vec::new() };
        let name = self.name("the name of a function")?;
        let params = if self.is('(') { self.params()? } else { Vec::new() };
        let mut directives = Vec::new();
        while let Kind::Dot(word) = self.peek().kind {
            let at = self.next().at;
            if word == "pragma" || word == "abi_preserve" || word == "abi_preserve_control" {
                self.skip_strings();
                self.takes(';');
                continue;
            }
            let mut values = Vec::new();
            while let Kind::Number(Number::Integer(value, false)) = self.peek().kind {
                self.next();
                values.push(value);
                if !self.takes(',') {
                    break;
                }
            }
            directives.push(Directive { name: Name { text: word, at }, values });
        }
        let body = if self.takes(';') {
            None
        } else {
            self.expect('{', "the body of a function, or `;` if it is only declared")?;
            Some(self.inside(Self::block)?)
        };
        Ok(Function { name, entry, returns, params, directives, body })
    }

    fn skip_strings(&mut self) {
        while matches!(self.peek().kind, Kind::Text(_) | Kind::Number(_) | Kind::Sign(',')) {
            self.next();
        }
    }

    /// Parameters in parentheses.
    fn params(&mut self) -> Read<Vec<Variable<'t>>> {
        self.expect('(', "parameters")?;
        let mut params = Vec::new();
        while !self.takes(')') {
            if !params.is_empty() {
                self.expect(',', "between parameters")?;
            }
            let token = self.peek();
            if !matches!(token.kind, Kind::Dot("param" | "reg")) {
                return self.unexpected("a parameter (`.param` or `.reg`) was needed");
            }
            self.next();
            let space = if token.kind == Kind::Dot("reg") { Space::Register } else { Space::Param };
            params.push(self.declared(space, false)?);
        }
        Ok(params)
    }

    // ---- variables ----

    /// The variables of one declaration.
    pub(super) fn variables(&mut self, external: bool) -> Read<Vec<Variable<'t>>> {
        self.attribute()?;
        let token = self.next();
        let space = match token.kind {
            Kind::Dot("global") => Space::Global,
            Kind::Dot("const") => Space::Constant,
            Kind::Dot("shared" | "shared::cta") => Space::Shared,
            Kind::Dot("local") => Space::Local,
            Kind::Dot("param") => Space::Param,
            _ => {
                return token.at.wrong(format!("found `{}`, the space of a variable was needed", token.text));
            }
        };
        self.attribute()?;
        let first = self.declared(space, external)?;
        let mut variables = vec![first];
        while self.takes(',') {
            let name = self.name("the name of a variable")?;
            let like = variables.first().map(|first| (first.align, first.ty, first.vector));
            let Some((align, ty, vector)) = like else { break };
            variables.push(self.variable((space, external), (align, ty, vector), name)?);
        }
        self.expect(';', "the end of a variable")?;
        Ok(variables)
    }

    /// `.attribute(.managed)`, which says nothing that is needed here.
    fn attribute(&mut self) -> Read<()> {
        while self.takes_dot("attribute") {
            self.expect('(', "an attribute")?;
            while !self.takes(')') {
                if self.next().kind == Kind::End {
                    return self.unexpected("`)` was needed: the end of an attribute");
                }
            }
        }
        Ok(())
    }

    /// What follows the space: alignment, type, name, extents, first value.
    fn declared(&mut self, space: Space, external: bool) -> Read<Variable<'t>> {
        let (mut align, mut pointer, mut vector, mut ty) = (None, false, 1, None);
        while let Kind::Dot(word) = self.peek().kind {
            let at = self.next().at;
            match word {
                // That of a pointer is the alignment of what it points to.
                "align" if ty.is_none() => align = Some(self.unsigned("an alignment in bytes")?),
                "align" => _ = self.unsigned("an alignment in bytes")?,
                "v2" => vector = 2,
                "v4" => vector = 4,
                "ptr" => pointer = true,
                "global" | "shared" | "const" | "local" | "param" if ty.is_some() => {}
                _ => ty = Some(Name { text: word, at }),
            }
        }
        let Some(ty) = ty else { return self.unexpected("a type such as `.b32` was needed") };
        let name = self.name("the name of a variable")?;
        Ok(Variable { pointer, ..self.variable((space, external), (align, ty, vector), name)? })
    }

    fn variable(
        &mut self,
        (space, external): (Space, bool),
        (align, ty, vector): (Option<u64>, Name<'t>, u64),
        name: Name<'t>,
    ) -> Read<Variable<'t>> {
        let mut extents = Vec::new();
        while self.takes('[') {
            extents.push(if self.is(']') { None } else { Some(self.unsigned("the extent of an array")?) });
            self.expect(']', "the end of an extent")?;
        }
        let initial = if self.takes('=') { Some(self.initial()?) } else { None };
        Ok(Variable { name, space, external, align, pointer: false, ty, vector, extents, initial })
    }

    fn initial(&mut self) -> Read<Initial<'t>> {
        let token = self.peek();
        if self.takes('{') {
            return self.inside(|parser| {
                let mut list = Vec::new();
                while !parser.takes('}') {
                    if !list.is_empty() {
                        parser.expect(',', "between first values")?;
                    }
                    list.push(parser.initial()?);
                }
                Ok(Initial::List(list))
            });
        }
        if token.kind != Kind::Word {
            return Ok(Initial::Number(self.number("a first value")?, token.at));
        }
        let name = self.name("a name")?;
        if name.text == "generic" && self.takes('(') {
            self.name("the name of a variable")?;
            self.expect(')', "the end of `generic(`")?;
        }
        self.offset()?;
        Ok(Initial::Address(name))
    }
}
