// Runs before the page's own script and collects all errors from its first line on.
window.wrong = [];
addEventListener("error", (event) => wrong.push(`error: ${event.message} (line ${event.lineno})`));
addEventListener("unhandledrejection", (event) => wrong.push(`rejected: ${event.reason}`));
for (const kind of ["error", "warn"]) console[kind] = (...words) => wrong.push(`console.${kind}: ${words.join(" ")}`);
// A browser that draws no frames never finishes a transition.
document.head.append(Object.assign(document.createElement("style"), { textContent: "* { transition: none !important; }" }));
