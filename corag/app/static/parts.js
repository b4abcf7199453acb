// The parts of the page beside the tree: answer, candidates, agent, methods.

import { bar, byId, definitions, element, foreign, number, replaced } from "./dom.js";

const tag = (kind, text) => element("span", { class: `tag ${kind}` }, text);

// Blocks of a context; with what was `found`, each chunk below its source.
export function showContext(holder, blocks, found = null) {
  let source = null;
  replaced(holder, blocks.length ? blocks.map((block) => {
    const parts = block.parts.map(([text, marked]) => (marked ? element("mark", {}, text) : text));
    const text = element("p", { class: "text", dir: "auto" }, parts);
    if (block.place === null) return element("div", { class: "block hint" }, text);
    const title = found?.items[found.order[block.place]].title ?? null;
    const head = [title !== source && foreign(title, "bdi", { class: "chip" }), block.evidence && tag("evidence", "evidence")];
    source = title;
    return element("div", { class: `block chunk${block.evidence ? " evidence" : ""}` }, element("p", { class: "head" }, head), text);
  }) : element("p", { class: "hint" }, "Nothing."));
}

// Passages with what was not chosen of them, best first, and the weightiest reason.
export function showLeftOut(found) {
  const out = Map.groupBy(found.items.filter((one) => one.chosen === null), (one) => one.passage ?? one.title);
  byId("out-says").textContent = `${number(found.items.length - found.order.length, 0)} of ${number(found.items.length, 0)} ${unitOf(found)}s, best-ranked first`;
  replaced(byId("left-out"), [...out.values()].map(([best, ...others]) => element("details", {},
    element("summary", {}, foreign(best.title, "bdi", { class: "chip" }), " ", best.evidence ? tag("evidence", "evidence") : null, " ",
      tag("out", best.reasons[0]?.[0] ?? "not chosen"), foreign(best.text, "span", { class: "begins" }),
      others.length ? element("small", {}, `and ${others.length} more`) : null),
    best.reasons.map(([, why]) => element("p", { class: "hint" }, why)),
    [best, ...others].map((one) => foreign(one.text, "p", { class: "text" })))));
}

// While the reader reads, what it said about the same question before stays.
export function showWaiting(kept) {
  const old = byId("said").querySelector(".said");
  if (kept && old) old.classList.add("waiting");
  else replaced(byId("said"), element("p", { class: "said waiting" }, "Reading …"));
}

// What a language model has written so far.
export const showStreamed = (text) => replaced(byId("said"), element("p", { class: "said waiting" }, foreign(text)));

// Settings under which nothing can be chosen: no answer and no context, but why.
export function showFailed(why) {
  replaced(byId("said"), element("p", { class: "said failed" }, foreign(why)));
  for (const name of ["meter", "context", "left-out"]) replaced(byId(name));
}

export const showUnread = (why) => replaced(byId("said"), element("p", { class: "said" }, "The reader could not answer."), foreign(why, "p"));

// The lines of a quotation, each as pieces of text that are marked or not.
function linesOf(pieces) {
  const lines = [[]];
  for (const [text, marked] of pieces) {
    text.split("\n").forEach((part, at) => {
      if (at) lines.push([]);
      lines.at(-1).push([part, marked]);
    });
  }
  return lines;
}

// A line that describes the one above it, as an option, is set in, also where it is wrapped.
function shownLine(pieces) {
  const isSetIn = pieces.map(([text]) => text).join("").startsWith("    ");
  return element("span", { class: isSetIn ? "quoted set-in" : "quoted" },
    pieces.map(([text, marked]) => (marked && text ? element("mark", {}, text) : text)));
}

export function showAnswer(said, found) {
  const holder = byId("said");
  const references = found.answers.length ? element("p", { class: "hint" }, "Known answer: ",
    found.answers.slice(0, 3).map((one, at) => [at ? ", " : null, foreign(one)]).flat()) : null;
  const quotes = said.quotes.map((pieces) => foreign(linesOf(pieces).map(shownLine), "blockquote"));
  replaced(holder,
    element("p", { class: "said" }, said.text ? foreign(said.text) : null, element("span", { class: "hint" }, ` ${said.headline}`)),
    quotes,
    said.reason ? foreign(said.reason, "p") : null,
    said.missing.map((question) => element("p", { class: "hint" }, "No likely answer to: ", foreign(question))),
  references);
}

export function showMeter(found) {
  const { order, tokens } = found;
  const share = tokens / found.budget_tokens;
  const evidence = found.gold === null ? null : `, ${found.found} of ${found.gold} pieces of evidence`;
  replaced(byId("meter"),
    bar(share, `${number(tokens, 0)} of ${number(found.budget_tokens, 0)} tokens`, "meter"),
    element("p", { class: "hint" }, order.length ? `${order.length} ${unitOf(found)}${order.length > 1 ? "s" : ""}, value ${number(found.value)}` : `Nothing was chosen: ${found.reason}`, evidence));
}

const unitOf = (found) => (found.unit === "passage" ? "chunk" : "sentence");

const table = (head, rows, label) => element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label },
  element("table", {}, element("thead", {}, element("tr", {}, head.map((one) => element("th", { scope: "col" }, one)))),
    element("tbody", {}, rows)));
const cell = (...children) => element("td", {}, children);

export function showCandidates(found) {
  const { items } = found;
  const cosine = found.similarity === "cosine";
  const similarity = cosine ? "similarity" : found.similarity;
  const best = Math.max(...items.map((one) => one.value), 1e-9);
  const highest = Math.max(...items.map((one) => one.similarity ?? 0), 1e-9);
  byId("candidates-say").textContent = `${items.length} ${unitOf(found)}s, best-ranked first` +
    `${cosine ? "" : "; their score is the question's words that they hold, and the rank of their passage"}. ` +
    "Value alone: what the reranker gives the chunk by itself.";
  const rows = items.map((one, at) => {
    const change = one.with ?? one.without;
    const delta = found.value === null || change.value === null ? null : change.value - found.value;
    const verdict = one.chosen === null
      ? one.reasons.map(([kind]) => tag("out", kind)) : tag("chosen", `chosen, place ${one.chosen + 1}`);
    return element("tr", { class: one.chosen === null ? "" : "is-chosen" },
      element("th", { scope: "row" }, at + 1),
      cell(foreign(one.title, "bdi", { class: "name" }), " ", one.evidence ? tag("evidence", "evidence") : null, foreign(one.text, "span", { class: "begins" })),
      cell(one.similarity === null ? "–" : bar(one.similarity / (cosine ? 1 : highest), number(one.similarity, 2))),
      cell(number(one.tokens, 0)),
      cell(bar(one.value / best, number(one.value))),
      cell(number(change.value),
        delta === null ? null : element("small", { class: delta < 0 ? "down" : "up" }, ` ${delta < 0 ? "−" : "+"}${number(Math.abs(delta))}`)),
      cell(verdict));
  });
  replaced(byId("items"),
    table(["#", "chunk", similarity, "tokens", "value alone", "value with / without it", "outcome"], rows, "Table of candidates"));
}

export function showRounds(found) {
  const holder = byId("rounds");
  holder.hidden = found.tree !== null;
  byId("tree-part").hidden = found.tree === null;
  if (found.tree !== null) return;
  const rounds = found.rounds.filter((one, at) => at === 0 || String(one) !== String(found.rounds[at - 1]));
  replaced(holder, element("p", {}, `Policy ${found.settings.policy} keeps no tree. The best order as it changed from round to round:`),
    element("ol", {}, rounds.map((order) => element("li", {}, order.map((one) => one + 1).join(" → ")))),
    element("p", { class: "hint" }, "Choose policy paper to see a tree."));
}

export function showAgent(agent) {
  const trace = element("dl", {});
  definitions(trace, agent.trace);
  const rows = Object.entries(agent.probabilities).sort((a, b) => b[1] - a[1]);
  replaced(byId("agent-says"), ...(agent.because ? [
    element("p", {}, "For this question: ", foreign(agent.because), "."),
    element("h3", {}, "Probability that a configuration serves this question best"),
    element("dl", { class: "odds" }, rows.map(([name, odds]) => [foreign(name, "dt"), element("dd", {}, bar(odds, number(odds, 2)))]).flat()),
  ] : [element("p", {}, "No agent names settings here.")]),
  element("details", {}, element("summary", {}, "What corag ask does with this question"), trace));
}

const HEAD = ["method", "tokens", "chunks", "evidence", "answer", "confidence", "ms"];

export function showMethods(rows, budget, names) {
  if (!rows.length) { replaced(byId("compared")); return; }
  const drawn = rows.map((one) => {
    if (one.error) return element("tr", {}, element("th", { scope: "row" }, one.method), element("td", { colspan: 6, class: "hint" }, foreign(one.error)));
    if (one.waiting) return element("tr", {}, element("th", { scope: "row" }, one.method), element("td", { colspan: 6, class: "hint" }, "…"));
    const context = element("div", {});
    showContext(context, one.answer_blocks);
    const trace = element("dl", {});
    definitions(trace, one.trace);
    return element("tr", { class: one.own ? "is-chosen" : "" },
      element("th", { scope: "row" }, element("details", {}, element("summary", {}, one.method), context, trace)),
      cell(bar(one.tokens / budget, number(one.tokens, 0))),
      cell(`${one.chunks}${one.units ? " sentences" : ""}`),
      cell(one.gold === null ? "–" : `${one.found} of ${one.gold}`),
      cell(one.answered ? foreign(one.answer)
        : element("span", { class: "hint" }, one.reason ?? "not found", one.answer ? ["; closest: ", foreign(one.answer)] : null)),
      cell(one.answered ? number(one.confidence, 2) : "–"),
      cell(number(Math.round(1000 * one.seconds), 0)));
  });
  replaced(byId("compared"), table(HEAD, drawn, "Table of methods"));
  byId("methods-say").textContent = `${names} at ${number(budget, 0)} tokens.`;
}
