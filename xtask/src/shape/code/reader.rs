//! Walks through a syntax tree.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the kinds that are not asked for are many, and will become more"
)]

use std::ops::Range;

use proc_macro2::{LineColumn, TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Meta, Token, Visibility};

use super::{Item, Kind, Outside};

/// What was found.
#[derive(Default)]
pub(super) struct Reader {
    pub(super) items: Vec<Item>,
    pub(super) expects: usize,
    pub(super) modules: Vec<Outside>,
    /// Lines of tests.
    pub(super) left_out: Vec<Range<usize>>,
    /// The inline modules around.
    within: Vec<String>,
    /// The `impl` or the trait around: its path, and the trait that it implements.
    owner: Option<(String, Option<String>)>,
}

/// A found item without its place.
struct Named {
    path: String,
    kind: Kind,
    public: bool,
    of_trait: Option<String>,
}

impl Reader {
    pub(super) fn file(&mut self, file: &syn::File) {
        file.items.iter().for_each(|item| self.visit_item(item));
    }

    fn push(&mut self, named: Named, of: &impl Spanned, signature: Option<Range<LineColumn>>) {
        let Named { path, kind, public, of_trait } = named;
        let span = of.span();
        let place = span.start()..span.end();
        let signature = signature.unwrap_or(place.clone());
        self.items.push(Item { path, kind, public, of_trait, lines: lines(span), place, signature });
    }

    fn plain(&mut self, name: String, kind: Kind, public: &Visibility, of: &impl Spanned) {
        let public = matches!(public, Visibility::Public(_));
        self.push(Named { path: name, kind, public, of_trait: None }, of, None);
    }

    /// A function, inside of what owns it.
    fn function(&mut self, signature: &syn::Signature, public: bool, of: &impl Spanned) {
        let name = &signature.ident;
        let (path, of_trait) = match &self.owner {
            None => (name.to_string(), None),
            Some((owner, of_trait)) => (format!("{owner}::{name}"), of_trait.clone()),
        };
        let span = signature.span();
        let range = span.start()..span.end();
        self.push(Named { path, kind: Kind::Function, public, of_trait }, of, Some(range));
    }

    /// What an item has inside, in an owner or in none.
    fn inside(&mut self, owner: Option<(String, Option<String>)>, visit: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.owner, owner);
        visit(self);
        self.owner = outer;
    }

    fn leave_out(&mut self, of: &impl Spanned) {
        self.left_out.push(lines(of.span()));
    }
}

impl<'a> Visit<'a> for Reader {
    fn visit_item(&mut self, item: &'a syn::Item) {
        if attributes(item).iter().any(is_for_tests) {
            return self.leave_out(item);
        }
        match item {
            syn::Item::Struct(of) => self.plain(of.ident.to_string(), Kind::Type, &of.vis, item),
            syn::Item::Enum(of) => self.plain(of.ident.to_string(), Kind::Type, &of.vis, item),
            syn::Item::Union(of) => self.plain(of.ident.to_string(), Kind::Type, &of.vis, item),
            syn::Item::Type(of) => self.plain(of.ident.to_string(), Kind::Type, &of.vis, item),
            syn::Item::Const(of) => self.plain(of.ident.to_string(), Kind::Other, &of.vis, item),
            syn::Item::Static(of) => self.plain(of.ident.to_string(), Kind::Other, &of.vis, item),
            syn::Item::Trait(of) => {
                self.plain(of.ident.to_string(), Kind::Type, &of.vis, item);
                return self
                    .inside(Some((of.ident.to_string(), None)), |inner| visit::visit_item_trait(inner, of));
            }
            syn::Item::Impl(of) => {
                let ty = last(&of.self_ty);
                let of_trait = of.trait_.as_ref().map(|(_, path, _)| {
                    path.segments.last().map_or_else(String::new, |segment| segment.ident.to_string())
                });
                let path =
                    of_trait.as_ref().map_or_else(|| ty.clone(), |of_trait| format!("{of_trait} for {ty}"));
                let named =
                    Named { path: path.clone(), kind: Kind::Impl, public: false, of_trait: of_trait.clone() };
                self.push(named, item, None);
                return self.inside(Some((path, of_trait)), |inner| visit::visit_item_impl(inner, of));
            }
            syn::Item::Fn(of) => {
                let public = matches!(of.vis, Visibility::Public(_));
                self.inside(None, |inner| inner.function(&of.sig, public, item));
            }
            syn::Item::Macro(of) => match &of.ident {
                Some(name) => {
                    let named =
                        Named { path: name.to_string(), kind: Kind::Macro, public: false, of_trait: None };
                    self.push(named, item, None);
                }
                None => {
                    let called =
                        of.mac.path.segments.last().map_or_else(String::new, |of| of.ident.to_string());
                    let named = Named { path: called, kind: Kind::Call, public: false, of_trait: None };
                    self.push(named, item, None);
                }
            },
            syn::Item::Mod(of) => match &of.content {
                None => self.modules.push(Outside {
                    name: of.ident.to_string(),
                    within: self.within.clone(),
                    path: of.attrs.iter().find_map(path_of),
                }),
                Some(_) => {
                    self.within.push(of.ident.to_string());
                    visit::visit_item(self, item);
                    self.within.pop();
                    return;
                }
            },
            _ => {}
        }
        // Types and functions inside of functions have no owner.
        self.inside(None, |inner| visit::visit_item(inner, item));
    }

    fn visit_impl_item(&mut self, item: &'a ImplItem) {
        let attributes = match item {
            ImplItem::Fn(of) => &of.attrs,
            ImplItem::Const(of) => &of.attrs,
            ImplItem::Type(of) => &of.attrs,
            ImplItem::Macro(of) => &of.attrs,
            _ => return,
        };
        if attributes.iter().any(is_for_tests) {
            return self.leave_out(item);
        }
        if let ImplItem::Fn(of) = item {
            let public = matches!(of.vis, Visibility::Public(_));
            self.function(&of.sig, public, item);
        }
        self.inside(None, |inner| visit::visit_impl_item(inner, item));
    }

    fn visit_trait_item_fn(&mut self, of: &'a syn::TraitItemFn) {
        self.function(&of.sig, false, of);
        self.inside(None, |inner| visit::visit_trait_item_fn(inner, of));
    }

    fn visit_expr_method_call(&mut self, call: &'a syn::ExprMethodCall) {
        self.expects += usize::from(call.method == "expect");
        visit::visit_expr_method_call(self, call);
    }

    /// Calls of macros, and macros: their text is no tree.
    fn visit_macro(&mut self, of: &'a syn::Macro) {
        self.expects += expects(of.tokens.clone());
    }
}

/// Calls of the method `expect` in tokens.
fn expects(tokens: TokenStream) -> usize {
    let (mut count, mut dot) = (0, false);
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                count += expects(group.stream());
                dot = false;
            }
            TokenTree::Ident(name) => {
                count += usize::from(dot && name == "expect");
                dot = false;
            }
            TokenTree::Punct(mark) => dot = mark.as_char() == '.',
            TokenTree::Literal(_) => dot = false,
        }
    }
    count
}

fn lines(span: proc_macro2::Span) -> Range<usize> {
    span.start().line..span.end().line + 1
}

/// The last name of a type's path.
fn last(ty: &syn::Type) -> String {
    match ty {
        syn::Type::Path(of) => of.path.segments.last().map_or_else(String::new, |of| of.ident.to_string()),
        syn::Type::Reference(of) => last(&of.elem),
        syn::Type::Group(of) => last(&of.elem),
        syn::Type::Paren(of) => last(&of.elem),
        syn::Type::Array(of) => format!("[{}]", last(&of.elem)),
        syn::Type::Slice(of) => format!("[{}]", last(&of.elem)),
        syn::Type::TraitObject(of) => of.bounds.iter().find_map(bound).unwrap_or_default(),
        _ => String::new(),
    }
}

fn bound(of: &syn::TypeParamBound) -> Option<String> {
    let syn::TypeParamBound::Trait(of) = of else { return None };
    of.path.segments.last().map(|of| of.ident.to_string())
}

fn attributes(item: &syn::Item) -> &[Attribute] {
    match item {
        syn::Item::Const(of) => &of.attrs,
        syn::Item::Enum(of) => &of.attrs,
        syn::Item::ExternCrate(of) => &of.attrs,
        syn::Item::Fn(of) => &of.attrs,
        syn::Item::ForeignMod(of) => &of.attrs,
        syn::Item::Impl(of) => &of.attrs,
        syn::Item::Macro(of) => &of.attrs,
        syn::Item::Mod(of) => &of.attrs,
        syn::Item::Static(of) => &of.attrs,
        syn::Item::Struct(of) => &of.attrs,
        syn::Item::Trait(of) => &of.attrs,
        syn::Item::TraitAlias(of) => &of.attrs,
        syn::Item::Type(of) => &of.attrs,
        syn::Item::Union(of) => &of.attrs,
        syn::Item::Use(of) => &of.attrs,
        _ => &[],
    }
}

/// Whether something is there in tests alone.
fn is_for_tests(attribute: &Attribute) -> bool {
    if attribute.path().is_ident("test") {
        return true;
    }
    attribute.path().is_ident("cfg") && attribute.parse_args::<Meta>().is_ok_and(|of| needs_tests(&of))
}

/// Whether a condition holds in tests alone.
fn needs_tests(condition: &Meta) -> bool {
    let parts = |list: &syn::MetaList| {
        let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
        parts.map(|parts| parts.iter().map(needs_tests).collect::<Vec<_>>()).unwrap_or_default()
    };
    match condition {
        Meta::Path(path) => path.is_ident("test") || path.is_ident("doctest"),
        Meta::List(list) if list.path.is_ident("all") => parts(list).contains(&true),
        Meta::List(list) if list.path.is_ident("any") => {
            let parts = parts(list);
            !parts.is_empty() && !parts.contains(&false)
        }
        Meta::List(_) | Meta::NameValue(_) => false,
    }
}

/// The file that an attribute names.
fn path_of(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(of) = &attribute.meta else { return None };
    let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }) = &of.value else { return None };
    of.path.is_ident("path").then(|| path.value())
}
