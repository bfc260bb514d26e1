//! The syntax of formulas: text to expressions and back.
//!
//! Formulas of epilogues ([`Formula`](crate::Formula)) and of other parts of kernels have one grammar. What differs is a [`Dialect`]: which operators
//! there are, and what may stand in brackets.

use core::fmt;
use core::marker::PhantomData;

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

/// What a kind of formulas adds to the grammar.
pub trait Dialect: Clone + fmt::Debug {
    /// Something in device memory: a name, and what stands in brackets.
    type Place: Clone + fmt::Debug + fmt::Display;

    /// The operators that there are.
    const OPERATORS: &'static [Operator];

    /// Names that no value can have.
    const RESERVED: &'static [&'static str];

    /// Reads what stands in brackets after a name, from the bracket on.
    ///
    /// # Errors
    /// What is not possible there.
    fn place(parser: &mut Parser<'_, Self>, at: usize, name: String) -> Result<Self::Place, FormulaError>;

    /// Why a name cannot stand without brackets.
    fn refused(_name: &str) -> Option<String> {
        None
    }
}

/// An expression, with the column where it begins.
#[derive(Clone, Debug)]
pub struct Expression<D: Dialect> {
    /// The column.
    pub at: usize,
    /// What it is.
    pub is: Is<D>,
}

/// What an expression is.
#[derive(Clone, Debug)]
pub enum Is<D: Dialect> {
    /// A constant.
    Number(f64),
    /// A name without brackets.
    Name(String),
    /// Something in device memory.
    Place(D::Place),
    /// A function.
    Call {
        /// Its name.
        name: String,
        /// What it is called with.
        given: Vec<Expression<D>>,
    },
    /// An operator between two expressions.
    Binary {
        /// Which.
        operator: Operator,
        /// Left and right.
        of: Box<[Expression<D>; 2]>,
    },
    /// `-x`.
    Negative(Box<Expression<D>>),
    /// `!x`.
    Not(Box<Expression<D>>),
    /// `name = value; body`.
    Let {
        /// The name.
        name: String,
        /// Its value.
        value: Box<Expression<D>>,
        /// Where the name has it.
        body: Box<Expression<D>>,
    },
}

/// An operator between two expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// `|`.
    Or,
    /// `&`.
    And,
    /// `==`.
    Equal,
    /// `!=`.
    Differs,
    /// `<`.
    Less,
    /// `<=`.
    AtMost,
    /// `>`.
    More,
    /// `>=`.
    AtLeast,
    /// `+`.
    Add,
    /// `-`.
    Subtract,
    /// `*`.
    Multiply,
    /// `/`.
    Divide,
    /// `%`.
    Remainder,
}

impl Operator {
    /// Those of arithmetic.
    pub const ARITHMETIC: [Self; 4] = [Self::Add, Self::Subtract, Self::Multiply, Self::Divide];

    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Or,
        Self::And,
        Self::Equal,
        Self::Differs,
        Self::Less,
        Self::AtMost,
        Self::More,
        Self::AtLeast,
        Self::Add,
        Self::Subtract,
        Self::Multiply,
        Self::Divide,
        Self::Remainder,
    ];

    /// Its sign.
    pub const fn sign(self) -> &'static str {
        match self {
            Self::Or => "|",
            Self::And => "&",
            Self::Equal => "==",
            Self::Differs => "!=",
            Self::Less => "<",
            Self::AtMost => "<=",
            Self::More => ">",
            Self::AtLeast => ">=",
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
        }
    }

    /// How tightly it binds.
    const fn binds(self) -> u32 {
        match self {
            Self::Or => 1,
            Self::And => 2,
            Self::Equal | Self::Differs | Self::Less | Self::AtMost | Self::More | Self::AtLeast => 3,
            Self::Add | Self::Subtract => 4,
            Self::Multiply | Self::Divide | Self::Remainder => TIGHTEST,
        }
    }

    /// Whether it is one between truths, or its result is a truth.
    pub const fn is_logical(self) -> bool {
        self.binds() < 4
    }
}

/// How tightly the tightest operator binds.
const TIGHTEST: u32 = 5;

/// The signs that are no operators.
const SIGNS: [&str; 9] = ["(", ")", "[", "]", ",", ":", ";", "=", "%"];

/// Longest text, in characters.
const LONGEST: usize = 4096;

/// Most expressions inside of each other.
const DEEPEST: u32 = 100;

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Number(f64),
    Word(String),
    Sign(&'static str),
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
///
/// # Errors
/// Where it is no expression, and why.
pub fn parse<D: Dialect>(text: &str) -> Result<Expression<D>, FormulaError> {
    let end = text.chars().count();
    let mut parser = Parser::<D> { text, tokens: Vec::new(), next: 0, end, depth: 0, dialect: PhantomData };
    if end > LONGEST {
        return Err(parser.error(0, format!("the text has {end} characters, {LONGEST} are legal")));
    }
    parser.tokens = parser.tokens()?;
    let expr = parser.block()?;
    match parser.peek() {
        None => Ok(expr),
        Some(token) => Err(parser.error(parser.at(), format!("the formula ends before {token}"))),
    }
}

/// A text that is read.
#[derive(Debug)]
pub struct Parser<'a, D> {
    text: &'a str,
    tokens: Vec<(usize, Token)>,
    next: usize,
    end: usize,
    depth: u32,
    dialect: PhantomData<fn() -> D>,
}

impl<D: Dialect> Parser<'_, D> {
    /// An error at a column.
    pub fn error(&self, column: usize, reason: impl Into<String>) -> FormulaError {
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
            } else if let Some(sign) = Self::sign(&all[at..]) {
                at += sign.len();
                tokens.push((begin, Token::Sign(sign)));
            } else {
                return Err(self.error(at, format!("`{first}` has no meaning in a formula")));
            }
        }
        Ok(tokens)
    }

    /// The sign with which a text begins: the longest one.
    fn sign(text: &[char]) -> Option<&'static str> {
        let not = D::OPERATORS.contains(&Operator::And).then_some("!");
        let signs = D::OPERATORS.iter().map(|operator| operator.sign()).chain(SIGNS).chain(not);
        let begins = |sign: &&'static str| {
            sign.len() <= text.len() && sign.chars().zip(text).all(|(of_sign, of_text)| of_sign == *of_text)
        };
        signs.filter(begins).max_by_key(|sign| sign.len())
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|(_, token)| token)
    }

    /// The column of the next token.
    pub fn at(&self) -> usize {
        self.tokens.get(self.next).map_or(self.end, |(at, _)| *at)
    }

    /// Whether this sign is next. Then it is read.
    pub fn is(&mut self, sign: &'static str) -> bool {
        let found = self.peek() == Some(&Token::Sign(sign));
        self.next += usize::from(found);
        found
    }

    /// The error that something else was needed here.
    pub fn needed(&self, what: &str) -> FormulaError {
        let found = self.peek().map_or_else(|| "the end".to_owned(), Token::to_string);
        self.error(self.at(), format!("{what} was needed, here is {found}"))
    }

    /// Reads this sign.
    ///
    /// # Errors
    /// If another one is next.
    pub fn need(&mut self, sign: &'static str) -> Result<(), FormulaError> {
        if self.is(sign) { Ok(()) } else { Err(self.needed(&format!("`{sign}`"))) }
    }

    fn word(&mut self, what: &str) -> Result<String, FormulaError> {
        self.take_word().ok_or_else(|| self.needed(what))
    }

    /// Reads a word, if one is next.
    pub fn take_word(&mut self) -> Option<String> {
        let Some(Token::Word(word)) = self.peek() else { return None };
        let word = word.clone();
        self.next += 1;
        Some(word)
    }

    /// Reads a number, if one is next.
    pub fn take_number(&mut self) -> Option<f64> {
        let Some(&Token::Number(number)) = self.peek() else { return None };
        self.next += 1;
        Some(number)
    }

    /// What is next, if there is something.
    pub fn found(&self) -> Option<String> {
        self.peek().map(Token::to_string)
    }

    /// `name = value; body`, or an expression.
    ///
    /// # Errors
    /// What is neither.
    pub fn block(&mut self) -> Result<Expression<D>, FormulaError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(
                self.error(self.at(), format!("more than {DEEPEST} expressions stand inside of each other"))
            );
        }
        let at = self.at();
        let binds = matches!(
            self.tokens.get(self.next..self.next + 2),
            Some([(_, Token::Word(_)), (_, Token::Sign("="))])
        );
        let expr = if binds {
            let name = self.word("a name")?;
            if D::RESERVED.contains(&name.as_str()) {
                return Err(self.error(
                    at,
                    format!("`{name}` has a meaning of its own: bind the value to another name"),
                ));
            }
            self.need("=")?;
            let value = Box::new(self.sum(0)?);
            self.need(";")?;
            Expression { at, is: Is::Let { name, value, body: Box::new(self.block()?) } }
        } else {
            self.sum(0)?
        };
        self.depth -= 1;
        Ok(expr)
    }

    /// Operators that bind more tightly than `least`.
    fn sum(&mut self, least: u32) -> Result<Expression<D>, FormulaError> {
        let mut left = self.signed()?;
        loop {
            let is_next = |operator: &&Operator| self.peek() == Some(&Token::Sign(operator.sign()));
            let operator = D::OPERATORS.iter().find(is_next).copied();
            let Some(operator) = operator.filter(|operator| operator.binds() > least) else {
                return Ok(left);
            };
            self.next += 1;
            let right = self.sum(operator.binds())?;
            left = Expression { at: left.at, is: Is::Binary { operator, of: Box::new([left, right]) } };
        }
    }

    fn signed(&mut self) -> Result<Expression<D>, FormulaError> {
        let at = self.at();
        let negative = self.is("-");
        if !negative && !self.is("!") {
            return self.primary();
        }
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.error(at, format!("more than {DEEPEST} expressions stand inside of each other")));
        }
        let of = self.signed()?;
        self.depth -= 1;
        if !negative {
            return Ok(Expression { at, is: Is::Not(Box::new(of)) });
        }
        if let Is::Number(number) = of.is
            && number > 0.0
        {
            return Ok(Expression { at, is: Is::Number(-number) });
        }
        Ok(Expression { at, is: Is::Negative(Box::new(of)) })
    }

    fn primary(&mut self) -> Result<Expression<D>, FormulaError> {
        let at = self.at();
        if self.is("(") {
            let inner = self.block()?;
            self.need(")")?;
            return Ok(inner);
        }
        if let Some(number) = self.take_number() {
            return Ok(Expression { at, is: Is::Number(number) });
        }
        let name = self.word("a number, a name or `(`")?;
        if self.is("(") {
            let given = self.list(")")?;
            return Ok(Expression { at, is: Is::Call { name, given } });
        }
        if self.is("[") {
            let place = D::place(self, at, name)?;
            return Ok(Expression { at, is: Is::Place(place) });
        }
        if let Some(reason) = D::refused(&name) {
            return Err(self.error(at, reason));
        }
        Ok(Expression { at, is: Is::Name(name) })
    }

    /// Expressions between commas, and the sign after them.
    ///
    /// # Errors
    /// What is none.
    pub fn list(&mut self, end: &'static str) -> Result<Vec<Expression<D>>, FormulaError> {
        let mut all = vec![self.block()?];
        while self.is(",") {
            all.push(self.block()?);
        }
        self.need(end)?;
        Ok(all)
    }

    /// Reads a format.
    ///
    /// # Errors
    /// If it is none that vectors and matrices can have.
    pub fn format(&mut self) -> Result<Format, FormulaError> {
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
pub(crate) fn stored(name: &str) -> Option<Format> {
    Format::named(name).filter(|named| formats().any(|format| format == *named))
}

/// The formats that vectors and matrices of a formula can have.
pub(crate) fn formats() -> impl Iterator<Item = Format> {
    Format::ALL.into_iter().filter(|format| *format != Format::Tf32)
}

impl<D: Dialect> Expression<D> {
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
                f.write_str(operator.sign())?;
                of[1].write(f, binds)?;
                f.write_str(close)
            }
            Is::Negative(of) => {
                let (open, close) = if least > 0 { ("(", ")") } else { ("", "") };
                write!(f, "{open}-")?;
                of.write(f, TIGHTEST)?;
                f.write_str(close)
            }
            Is::Not(of) => {
                f.write_str("!")?;
                of.write(f, TIGHTEST)
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
impl<D: Dialect> fmt::Display for Expression<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

/// A number that stands for a text in names, the same in every process: FNV-1a.
pub fn digest(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
