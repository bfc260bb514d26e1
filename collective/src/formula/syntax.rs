//! The syntax of formulas: text to expressions and back.

use core::fmt;

use crate::element::Format;

/// Why a text is no formula.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormulaError {
    /// The text.
    pub text: String,
    /// The column of the mistake, in characters from 0.
    pub column: usize,
    /// What is wrong, in one sentence.
    pub reason: String,
}

impl fmt::Display for FormulaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, column, reason } = self;
        // Blanks of any kind are one column, as in the text.
        let shown: String = text.chars().map(|c| if c.is_whitespace() { ' ' } else { c }).collect();
        write!(f, "{reason}\n{shown}\n{:column$}^", "")
    }
}

impl core::error::Error for FormulaError {}

/// An expression, with the column where it begins.
#[derive(Clone, Debug)]
pub(super) struct Expr {
    pub(super) at: usize,
    pub(super) is: Is,
}

#[derive(Clone, Debug)]
pub(super) enum Is {
    Number(f64),
    /// The accumulator, C, a number of the host, or a bound value.
    Name(String),
    Place(Place),
    Call {
        name: String,
        given: Vec<Expr>,
    },
    Binary {
        operator: Operator,
        of: Box<[Expr; 2]>,
    },
    Negative(Box<Expr>),
    /// `name = value; body`.
    Let {
        name: String,
        value: Box<Expr>,
        body: Box<Expr>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
}

impl Operator {
    const ALL: [(char, Self); 4] =
        [('+', Self::Add), ('-', Self::Subtract), ('*', Self::Multiply), ('/', Self::Divide)];

    /// How tightly it binds.
    const fn binds(self) -> u32 {
        match self {
            Self::Add | Self::Subtract => 2,
            Self::Multiply | Self::Divide => 3,
        }
    }
}

/// Something in device memory.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Place {
    pub(super) name: String,
    /// Whether each GEMM of a launch has its own.
    pub(super) each: bool,
    pub(super) index: Index,
    pub(super) format: Option<Format>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Index {
    Zero,
    Row,
    Column,
    Both,
    /// A matrix with this number of columns, repeated along N.
    Cyclic(u32),
}

/// Longest text, in characters.
const LONGEST: usize = 4096;

/// Most expressions inside of each other.
const DEEPEST: u32 = 100;

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Number(f64),
    Word(String),
    Sign(char),
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "`{number}`"),
            Self::Word(word) => write!(f, "`{word}`"),
            Self::Sign(sign) => write!(f, "`{sign}`"),
        }
    }
}

/// Reads a text.
pub(super) fn parse(text: &str) -> Result<Expr, FormulaError> {
    let mut parser = Parser { text, tokens: Vec::new(), next: 0, end: text.chars().count(), depth: 0 };
    if parser.end > LONGEST {
        return Err(parser.error(0, format!("the text has {} characters, {LONGEST} are legal", parser.end)));
    }
    parser.tokens = parser.tokens()?;
    let mut expr = parser.block()?;
    // D's format has its own name, whichever was written.
    if let Is::Call { name, .. } = &mut expr.is
        && let Some(format) = stored(name)
    {
        format.name().clone_into(name);
    }
    match parser.peek() {
        None => Ok(expr),
        Some(token) => Err(parser.error(parser.at(), format!("the formula ends before {token}"))),
    }
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<(usize, Token)>,
    next: usize,
    end: usize,
    depth: u32,
}

impl Parser<'_> {
    fn error(&self, column: usize, reason: impl Into<String>) -> FormulaError {
        FormulaError { text: self.text.to_owned(), column, reason: reason.into() }
    }

    fn tokens(&self) -> Result<Vec<(usize, Token)>, FormulaError> {
        let all: Vec<char> = self.text.chars().collect();
        let mut tokens = Vec::new();
        let mut at = 0;
        while let Some(&first) = all.get(at) {
            let run = |from: usize, of: &dyn Fn(char) -> bool| {
                all[from..].iter().take_while(|c| of(**c)).count() + from
            };
            let begin = at;
            if first.is_whitespace() {
                at += 1;
                continue;
            } else if first.is_ascii_digit() || first == '.' {
                at = run(at, &|c| c.is_ascii_digit() || c == '.');
                let sign = matches!(all.get(at + 1), Some('+' | '-'));
                let exponent = all.get(at + 1 + usize::from(sign)).is_some_and(char::is_ascii_digit);
                if matches!(all.get(at), Some('e' | 'E')) && exponent {
                    at = run(at + 1 + usize::from(sign), &|c| c.is_ascii_digit());
                }
                let number: String = all[begin..at].iter().collect();
                let value = number.parse::<f64>().ok().filter(|value| (*value as f32).is_finite());
                let value =
                    value.ok_or_else(|| self.error(begin, format!("`{number}` is no number of f32")))?;
                tokens.push((begin, Token::Number(value)));
            } else if first.is_ascii_alphabetic() || first == '_' {
                at = run(at, &|c| c.is_ascii_alphanumeric() || c == '_');
                tokens.push((begin, Token::Word(all[begin..at].iter().collect())));
            } else if "+-*/()[],:;=%".contains(first) {
                at += 1;
                tokens.push((begin, Token::Sign(first)));
            } else {
                return Err(self.error(at, format!("`{first}` has no meaning in a formula")));
            }
        }
        Ok(tokens)
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|(_, token)| token)
    }

    /// The column of the next token.
    fn at(&self) -> usize {
        self.tokens.get(self.next).map_or(self.end, |(at, _)| *at)
    }

    fn is(&mut self, sign: char) -> bool {
        let found = self.peek() == Some(&Token::Sign(sign));
        self.next += usize::from(found);
        found
    }

    /// The error that something else was needed here.
    fn needed(&self, what: &str) -> FormulaError {
        let found = self.peek().map_or_else(|| "the end".to_owned(), Token::to_string);
        self.error(self.at(), format!("{what} was needed, here is {found}"))
    }

    fn need(&mut self, sign: char) -> Result<(), FormulaError> {
        if self.is(sign) { Ok(()) } else { Err(self.needed(&format!("`{sign}`"))) }
    }

    fn word(&mut self, what: &str) -> Result<String, FormulaError> {
        match self.peek() {
            Some(Token::Word(word)) => {
                let word = word.clone();
                self.next += 1;
                Ok(word)
            }
            _ => Err(self.needed(what)),
        }
    }

    /// `name = value; body`, or an expression.
    fn block(&mut self) -> Result<Expr, FormulaError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(
                self.error(self.at(), format!("more than {DEEPEST} expressions stand inside of each other"))
            );
        }
        let at = self.at();
        let binds = matches!(
            self.tokens.get(self.next..self.next + 2),
            Some([(_, Token::Word(_)), (_, Token::Sign('='))])
        );
        let expr = if binds {
            let name = self.word("a name")?;
            if RESERVED.contains(&name.as_str()) {
                return Err(self.error(
                    at,
                    format!("`{name}` has a meaning of its own: bind the value to another name"),
                ));
            }
            self.need('=')?;
            let value = Box::new(self.sum(0)?);
            self.need(';')?;
            Expr { at, is: Is::Let { name, value, body: Box::new(self.block()?) } }
        } else {
            self.sum(0)?
        };
        self.depth -= 1;
        Ok(expr)
    }

    /// Operators that bind more tightly than `least`.
    fn sum(&mut self, least: u32) -> Result<Expr, FormulaError> {
        let mut left = self.signed()?;
        loop {
            let operator =
                Operator::ALL.into_iter().find(|(sign, _)| self.peek() == Some(&Token::Sign(*sign)));
            let Some((_, operator)) = operator.filter(|(_, operator)| operator.binds() > least) else {
                return Ok(left);
            };
            self.next += 1;
            let right = self.sum(operator.binds())?;
            left = Expr { at: left.at, is: Is::Binary { operator, of: Box::new([left, right]) } };
        }
    }

    fn signed(&mut self) -> Result<Expr, FormulaError> {
        let at = self.at();
        if !self.is('-') {
            return self.primary();
        }
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.error(at, format!("more than {DEEPEST} expressions stand inside of each other")));
        }
        let of = self.signed()?;
        self.depth -= 1;
        if let Is::Number(number) = of.is
            && number > 0.0
        {
            return Ok(Expr { at, is: Is::Number(-number) });
        }
        Ok(Expr { at, is: Is::Negative(Box::new(of)) })
    }

    fn primary(&mut self) -> Result<Expr, FormulaError> {
        let at = self.at();
        if self.is('(') {
            let inner = self.block()?;
            self.need(')')?;
            return Ok(inner);
        }
        if let Some(&Token::Number(number)) = self.peek() {
            self.next += 1;
            return Ok(Expr { at, is: Is::Number(number) });
        }
        let name = self.word("a number, a name or `(`")?;
        if self.is('(') {
            let mut given = vec![self.block()?];
            while self.is(',') {
                given.push(self.block()?);
            }
            self.need(')')?;
            return Ok(Expr { at, is: Is::Call { name, given } });
        }
        if self.is('[') {
            if RESERVED.contains(&name.as_str()) && name != "c" {
                return Err(self.error(at, format!("`{name}` has a meaning of its own, and no index")));
            }
            let (each, index) = self.index()?;
            let format = if self.is(':') { Some(self.format()?) } else { None };
            return Ok(Expr { at, is: Is::Place(Place { name, each, index, format }) });
        }
        if let "m" | "n" | "l" = name.as_str() {
            return Err(self.error(at, format!("`{name}` is an index: it stands in brackets")));
        }
        Ok(Expr { at, is: Is::Name(name) })
    }

    /// What stands in brackets.
    fn index(&mut self) -> Result<(bool, Index), FormulaError> {
        let wrong = |parser: &Self, at: usize, found: String| {
            parser.error(
                at,
                format!("{found} is no index: write [n], [m], [m,n], [m,n%64] or [0], and l for an own one per GEMM"),
            )
        };
        let mut axes = Vec::new();
        let mut cycle = None;
        let begin = self.at();
        loop {
            let at = self.at();
            match self.peek() {
                Some(Token::Number(0.0)) => axes.push("0"),
                Some(Token::Word(word)) if word == "m" => axes.push("m"),
                Some(Token::Word(word)) if word == "n" => axes.push("n"),
                Some(Token::Word(word)) if word == "l" => axes.push("l"),
                Some(other) => return Err(wrong(self, at, other.to_string())),
                None => return Err(self.needed("an index")),
            }
            self.next += 1;
            if self.is('%') {
                match self.peek() {
                    Some(&Token::Number(number)) => cycle = Some(number),
                    _ => return Err(self.needed("a number of columns")),
                }
                self.next += 1;
            }
            if !self.is(',') {
                break;
            }
        }
        self.need(']')?;
        let each = axes.first() == Some(&"l");
        let index = match (&axes[usize::from(each)..], cycle) {
            (["0"], None) => Index::Zero,
            (["n"], None) => Index::Column,
            (["m"], None) => Index::Row,
            (["m", "n"], None) => Index::Both,
            (["m", "n"], Some(columns)) => Index::Cyclic(columns as u32),
            _ => return Err(wrong(self, begin, format!("`[{}]`", axes.join(",")))),
        };
        Ok((each, index))
    }

    fn format(&mut self) -> Result<Format, FormulaError> {
        let at = self.at();
        let word = self.word("a format")?;
        stored(&word).ok_or_else(|| {
            let all = || formats().map(Format::name).collect::<Vec<_>>().join(", ");
            let names = Format::ambiguous(&word).map_or_else(|| format!("one of {}", all()), str::to_owned);
            self.error(at, format!("`{word}` is no format of a formula: write {names}"))
        })
    }
}

/// The format of D that a formula's outermost word says.
pub(super) fn stored(name: &str) -> Option<Format> {
    Format::named(name).filter(|named| formats().any(|format| format == *named))
}

/// The formats that vectors and matrices of a formula can have.
pub(super) fn formats() -> impl Iterator<Item = Format> {
    Format::ALL.into_iter().filter(|format| *format != Format::Tf32)
}

/// Words with a meaning of their own.
pub(super) const RESERVED: [&str; 5] = ["acc", "c", "m", "n", "l"];

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, each, index, format } = self;
        let each = if *each { "l," } else { "" };
        match index {
            Index::Zero => write!(f, "{name}[{each}0]")?,
            Index::Row => write!(f, "{name}[{each}m]")?,
            Index::Column => write!(f, "{name}[{each}n]")?,
            Index::Both => write!(f, "{name}[{each}m,n]")?,
            Index::Cyclic(columns) => write!(f, "{name}[{each}m,n%{columns}]")?,
        }
        format.map_or(Ok(()), |format| write!(f, ":{}", format.name()))
    }
}

impl Expr {
    /// Writes it where operators that bind `least` or less need parentheses; where `least` is not 0, so do
    /// bindings and signs.
    fn write(&self, f: &mut fmt::Formatter<'_>, least: u32) -> fmt::Result {
        match &self.is {
            Is::Number(number) if *number < 0.0 && least > 0 => write!(f, "({number})"),
            Is::Number(number) => write!(f, "{number}"),
            Is::Name(name) => f.write_str(name),
            Is::Place(place) => write!(f, "{place}"),
            Is::Call { name, given } => {
                write!(f, "{name}(")?;
                for (i, given) in given.iter().enumerate() {
                    f.write_str(if i > 0 { "," } else { "" })?;
                    given.write(f, 0)?;
                }
                f.write_str(")")
            }
            Is::Binary { operator, of } => {
                let binds = operator.binds();
                let (open, close) = if binds <= least { ("(", ")") } else { ("", "") };
                f.write_str(open)?;
                of[0].write(f, binds - 1)?;
                let sign = Operator::ALL
                    .into_iter()
                    .find(|(_, known)| known == operator)
                    .map_or('?', |(sign, _)| sign);
                write!(f, "{sign}")?;
                of[1].write(f, binds)?;
                f.write_str(close)
            }
            Is::Negative(of) => {
                let (open, close) = if least > 0 { ("(", ")") } else { ("", "") };
                write!(f, "{open}-")?;
                of.write(f, 3)?;
                f.write_str(close)
            }
            Is::Let { name, value, body } => {
                let (open, close) = if least > 0 { ("(", ")") } else { ("", "") };
                write!(f, "{open}{name}=")?;
                value.write(f, 1)?;
                f.write_str(";")?;
                body.write(f, 0)?;
                f.write_str(close)
            }
        }
    }
}

/// The text without blanks.
impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}
