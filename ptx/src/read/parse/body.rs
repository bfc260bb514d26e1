//! The bodies of functions: blocks, registers, labels, instructions.

use super::Parser;
use crate::read::error::Read;
use crate::read::lex::Kind;
use crate::read::syntax::{Instruction, Item, Line, Name, Registers};

impl<'t> Parser<'_, 't> {
    /// Items until `}`.
    pub(super) fn block(&mut self) -> Read<Vec<Item<'t>>> {
        let mut items = Vec::new();
        while !self.takes('}') {
            self.item(&mut items)?;
        }
        Ok(items)
    }

    fn item(&mut self, items: &mut Vec<Item<'t>>) -> Read<()> {
        let token = self.peek();
        match token.kind {
            Kind::Sign('{') => {
                self.next();
                items.push(Item::Block(self.inside(Self::block)?));
            }
            Kind::Sign(';') => _ = self.next(),
            Kind::Sign('@') => items.push(Item::Instruction(self.instruction()?)),
            Kind::Dot("reg") => items.push(Item::Registers(self.registers()?)),
            Kind::Dot("loc") => items.push(Item::Line(self.line()?)),
            Kind::Dot("pragma") => self.until_semicolon()?,
            Kind::Dot("shared" | "shared::cta" | "local" | "param" | "global" | "const") => {
                items.extend(self.variables(false)?.into_iter().map(Item::Variable));
            }
            Kind::Dot("extern") => {
                self.next();
                items.extend(self.variables(true)?.into_iter().map(Item::Variable));
            }
            Kind::Word if self.ahead(1).kind == Kind::Sign(':') => {
                let name = self.name("a label")?;
                self.next();
                items.push(self.labelled(name)?);
            }
            Kind::Word => items.push(Item::Instruction(self.instruction()?)),
            Kind::Dot(_) | Kind::Number(_) | Kind::Text(_) | Kind::Sign(_) | Kind::End => {
                return self
                    .unexpected("an instruction, a label, a directive of a function or `}` was needed");
            }
        }
        Ok(())
    }

    /// What follows a label: a list for a branch or a call, or anything.
    fn labelled(&mut self, name: Name<'t>) -> Read<Item<'t>> {
        match self.peek().kind {
            Kind::Dot("branchtargets") => {
                self.next();
                let mut labels = vec![self.name("a label")?];
                while self.takes(',') {
                    labels.push(self.name("a label")?);
                }
                self.expect(';', "the end of the labels")?;
                Ok(Item::Targets { name, labels })
            }
            Kind::Dot("callprototype" | "calltargets") => {
                self.until_semicolon()?;
                Ok(Item::Prototype)
            }
            Kind::Word | Kind::Dot(_) | Kind::Number(_) | Kind::Text(_) | Kind::Sign(_) | Kind::End => {
                Ok(Item::Label(name))
            }
        }
    }

    fn registers(&mut self) -> Read<Registers<'t>> {
        self.next();
        let vector = match (self.takes_dot("v2"), self.takes_dot("v4")) {
            (true, _) => 2,
            (_, true) => 4,
            _ => 1,
        };
        let Kind::Dot(ty) = self.peek().kind else {
            return self.unexpected("the type of registers, such as `.b32`, was needed");
        };
        let ty = Name { text: ty, at: self.next().at };
        let mut names = Vec::new();
        loop {
            let name = self.name("the name of a register")?;
            let count = if self.takes('<') {
                let count = self.unsigned("the number of registers")?;
                self.expect('>', "the end of the number of registers")?;
                Some(count)
            } else {
                None
            };
            names.push((name, count));
            if !self.takes(',') {
                break;
            }
        }
        self.expect(';', "the end of registers")?;
        Ok(Registers { ty, vector, names })
    }

    /// `.loc 1 23 5`, perhaps with `, function_name …, inlined_at …`, which are left out.
    pub(super) fn line(&mut self) -> Read<Line> {
        self.next();
        let file = self.unsigned("the number of a file")?;
        let line = self.unsigned("a line")?;
        let column = self.unsigned("a column")?;
        while self.takes(',') {
            match self.peek().text {
                "function_name" => {
                    self.next();
                    self.name("the label of a function's name")?;
                    self.offset()?;
                }
                "inlined_at" => {
                    self.next();
                    for what in ["the number of a file", "a line", "a column"] {
                        self.unsigned(what)?;
                    }
                }
                _ => return self.unexpected("`function_name` or `inlined_at` was needed"),
            }
        }
        Ok(Line { file, line, column })
    }

    fn instruction(&mut self) -> Read<Instruction<'t>> {
        let at = self.peek().at;
        let guard = if self.takes('@') {
            let negated = self.takes('!');
            Some((self.name("the predicate of a guard")?, negated))
        } else {
            None
        };
        let name = self.name("an instruction")?.text;
        let mut modifiers = Vec::new();
        while let Kind::Dot(modifier) = self.peek().kind {
            self.next();
            modifiers.push(modifier);
        }
        let mut operands = Vec::new();
        while !self.takes(';') {
            if !operands.is_empty() {
                self.expect(',', "between operands, or `;` after them")?;
            }
            operands.push(self.operand()?);
        }
        Ok(Instruction { at, guard, name, modifiers, operands })
    }
}
