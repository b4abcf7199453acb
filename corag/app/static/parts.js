// The parts of the page beside the tree: answer, candidates, agent, methods.

import { bar, byId, definitions, element, foreign, number, replaced } from "./dom.js";

const tag = (kind, text) => element("span", { class: `tag ${kind}` }, text);

export function showContext(holder, blocks, order) {
  replaced(holder, blocks.length ? blocks.map((block) => {
    const parts = block.parts.map(([text, marked]) => (marked ? element("mark", {}, text) : text));
    if (block.place === null) {
      return element("div", { class: "block" }, foreign(block.parts.map(([one]) => one).join("").trim(), "p", { class: "text" }));
    }
    const text = element("p", { class: "text", dir: "auto" }, parts);
    const name = order ? `${order[block.place] + 1}` : `${block.place + 1}`;
    return element("div", { class: `block chunk${block.evidence ? " evidence" : ""}` },
      element("p", { class: "head" }, element("span", { class: "chip" }, name), block.evidence ? tag("evidence", "evidence") : null), text);
  }) : element("p", { class: "hint" }, "Nothing."));
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
  for (const name of ["meter", "context"]) replaced(byId(name));
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
    element("p", { class: "hint" }, order.length ? `${order.length} ${order.length > 1 ? unitOf(found) + "s" : unitOf(found)} in this order: ` : `Nothing was chosen: ${found.reason}. `,
      order.map((one) => element("span", { class: "chip" }, one + 1)), order.length ? ` value ${number(found.value)}${evidence ?? ""}` : evidence));
}

const unitOf = (found) => (found.unit === "passage" ? "chunk" : "sentence");

const table = (head, rows, label) => element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label },
  element("table", {}, element("thead", {}, element("tr", {}, head.map((one) => element("th", { scope: "col" }, one)))),
    element("tbody", {}, rows)));
const cell = (label, ...children) => element("td", { "data-label": label }, children);

export function showCandidates(found, all, more, kept) {
  const { items } = found;
  const open = new Set(kept ? [...document.querySelectorAll("#items details[open]")].map((one) => Number(one.dataset.at)) : []);
  const cosine = found.similarity === "cosine";
  const similarity = cosine ? "similarity" : found.similarity;
  const best = Math.max(...items.map((one) => one.value), 1e-9);
  const highest = Math.max(...items.map((one) => one.similarity ?? 0), 1e-9);
  byId("candidates-say").textContent = `${items.length} ${unitOf(found)}s, best-ranked first` +
    `${cosine ? "" : "; their score is the question's words that they hold, and the rank of their passage"}. ` +
    "Value alone: what the reranker gives the chunk by itself. A click on one shows its text.";
  const first = matchMedia("(max-width: 760px)").matches ? 5 : 20; // cards take more room than rows
  const wanted = all ? items : items.filter((one, at) => at < first || one.chosen !== null);
  const rows = wanted.map((one) => {
    const at = items.indexOf(one);
    const change = one.with ?? one.without;
    const delta = found.value === null || change.value === null ? null : change.value - found.value;
    const verdict = one.chosen === null
      ? one.reasons.map(([kind, why]) => element("p", {}, tag("out", kind), " ", why))
      : [element("p", {}, tag("chosen", `chosen, place ${one.chosen + 1}`))];
    return element("tr", { class: one.chosen === null ? "" : "is-chosen" },
      element("th", { scope: "row" }, element("span", { class: "chip" }, at + 1)),
      cell("chunk", element("details", { "data-at": at, open: open.has(at) }, element("summary", {}, foreign(one.title, "bdi", { class: "name" }), " ",
        one.evidence ? tag("evidence", "evidence") : null, foreign(one.text.slice(0, 110), "span", { class: "begins" })),
      foreign(one.text, "p", { class: "text" }))),
      cell(similarity, one.similarity === null ? "–" : bar(one.similarity / (cosine ? 1 : highest), number(one.similarity, 2))),
      cell("tokens", number(one.tokens, 0)),
      cell("value alone", bar(one.value / best, number(one.value))),
      cell(one.chosen === null ? "with it" : "without it", number(change.value),
        delta === null ? null : element("small", { class: delta < 0 ? "down" : "up" }, ` ${delta < 0 ? "−" : "+"}${number(Math.abs(delta))}`)),
      cell("outcome", verdict));
  });
  replaced(byId("items"),
    table(["#", "chunk", similarity, "tokens", "value alone", "value with / without it", "outcome"], rows, "Table of candidates"),
    wanted.length < items.length ? element("button", { type: "button", onclick: more }, `Show all ${items.length}`) : null);
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
    showContext(context, one.answer_blocks, null);
    const trace = element("dl", {});
    definitions(trace, one.trace);
    return element("tr", { class: one.own ? "is-chosen" : "" },
      element("th", { scope: "row" }, element("details", {}, element("summary", {}, one.method), context, trace)),
      cell("tokens", bar(one.tokens / budget, number(one.tokens, 0))),
      cell("chunks", one.sources.map((at) => element("span", { class: "chip" }, at + 1)), one.units ? element("small", {}, ` ${one.chunks} sentences`) : null),
      cell("evidence", one.gold === null ? "–" : `${one.found} of ${one.gold}`),
      cell("answer", one.answered ? foreign(one.answer)
        : element("span", { class: "hint" }, one.reason ?? "not found", one.answer ? ["; closest: ", foreign(one.answer)] : null)),
      cell("confidence", one.answered ? number(one.confidence, 2) : "–"),
      cell("ms", number(Math.round(1000 * one.seconds), 0)));
  });
  replaced(byId("compared"), table(HEAD, drawn, "Table of methods"));
  byId("methods-say").textContent = `${names} at ${number(budget, 0)} tokens. Numbers are those of the passages.`;
}
