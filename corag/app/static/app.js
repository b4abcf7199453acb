// What people do on the page, and what is asked of the server. The last setting wins; nothing is asked twice at once.

import { byId, called, definitions, element, foreign, number, replaced } from "./dom.js";
import { showAgent, showAnswer, showCandidates, showContext, showFailed, showLeftOut, showMeter, showMethods, showRounds, showStreamed, showUnread, showWaiting } from "./parts.js";
import { forget, goTo, pause, play, redraw, showTree } from "./tree.js";

const SLIDERS = ["budget", "cost_weight", "iterations", "exploration"];
const SELECTS = ["unit", "reranker", "policy"];
const LEAST = 16;
const LABELS = {
  passage: "passages", sentence: "sentences", paper: "paper (tree)",
};
const READ_AFTER_MS = 250;

let about = null;
let asked = null; // { question, number }
let found = null;
let wanted = null; // settings that still have to be searched
let searching = false;
let reading = null;
let thought = null; // the question that the agent was asked about
let drawn = null; // what was found last and is on the page
let compared = [];
let run = 0; // of the comparison
let start = 0;
let picked = null;

// The budget's slider is logarithmic: small budgets are where a token counts.
const budgetAt = (place) => Math.round(LEAST * (4096 / LEAST) ** (place / 100));
const placeOf = (budget) => Math.round(100 * Math.log(budget / LEAST) / Math.log(4096 / LEAST));

function settings() {
  const given = { budget: found && Number(byId("budget").value) === placeOf(found.settings.budget) ? found.settings.budget : budgetAt(Number(byId("budget").value)) };
  for (const name of SLIDERS.slice(1)) given[name] = Number(byId(name).value);
  for (const name of SELECTS) given[name] = byId(name).value;
  return given;
}

function showSettings(given) {
  byId("budget").value = placeOf(given.budget);
  for (const name of SLIDERS.slice(1)) {
    const slider = byId(name);
    if (given[name] > Number(slider.max)) slider.max = given[name];
    slider.value = given[name];
  }
  for (const name of SELECTS) byId(name).value = given[name];
  showOutputs(given);
}

function showChanged(changed) {
  const was = { ...changed };
  if ("budget" in was) was.budget = `${number(was.budget, 0)} tokens`;
  const names = { cost_weight: "λ", exploration: "c" };
  byId("changed").textContent = Object.keys(was).length
    ? `Changed here. corag ask has ${Object.entries(was).map(([name, value]) => `${names[name] ?? name} ${LABELS[value] ?? value}`).join(", ")}.`
    : "As corag ask searches this question.";
}

function showOutputs(given) {
  const texts = { budget: `${number(given.budget, 0)} tokens`, cost_weight: number(given.cost_weight, 2),
    iterations: String(given.iterations), exploration: number(given.exploration, 3) };
  for (const [name, text] of Object.entries(texts)) {
    byId(`${name}-is`).textContent = text;
    byId(name).setAttribute("aria-valuetext", text);
  }
}

function complain(error) {
  byId("error").hidden = !error;
  byId("error").textContent = error ? error.message : "";
}

// The address holds the question and what was changed, so that it can be kept, sent and gone back to.
function toAddress() {
  const held = new URLSearchParams({ q: found.question });
  if (asked.number !== null) held.set("number", asked.number);
  for (const name of Object.keys(found.changed)) held.set(name, found.settings[name]);
  history.replaceState(null, "", `?${held}`);
}

function fromAddress() {
  const held = new URLSearchParams(location.search);
  if (!held.get("q")) return null;
  const given = {};
  for (const name of SLIDERS) if (held.has(name)) given[name] = Number(held.get(name));
  for (const name of SELECTS) if (held.has(name)) given[name] = held.get(name);
  return { question: held.get("q"), number: held.has("number") ? Number(held.get("number")) : null, given };
}

// What was found is gone when something else is asked, so that no answer is shown below another question.
function clear() {
  found = drawn = null;
  byId("found").hidden = true;
  complain(null);
}

async function ask(question, number, given = null) {
  const budget = found?.settings.budget;
  clear();
  byId("welcome").hidden = true;
  if (question.length > about.max_question) {
    complain(new Error(`The question has ${question.length.toLocaleString("en")} characters; ask with at most ${about.max_question.toLocaleString("en")}.`));
    return;
  }
  asked = { question, number };
  compared = [];
  run += 1;
  showMethods([], 0, "");
  wanted = given ?? (budget ? { budget } : {});
  await search();
}

// Searches until no newer settings are wanted.
async function search() {
  if (searching) return;
  searching = true;
  byId("busy").hidden = false;
  clearTimeout(reading);
  while (wanted) {
    const given = wanted, of = asked;
    wanted = null;
    try {
      const answer = await called("/api/search", { ...of, given });
      if (of !== asked) continue;
      found = answer;
      complain(null);
      if (!wanted) show();
    } catch (error) {
      if (wanted) continue;
      // Where the answer would be: below the question, or with the sliders that led to it still there.
      if (found) showFailed(error.message);
      else complain(error);
    }
  }
  searching = false;
  byId("busy").hidden = true;
}

function show() {
  const kept = drawn !== null && drawn.question === found.question && drawn.unit === found.unit;
  drawn = found;
  byId("found").hidden = false;
  byId("welcome").hidden = true;
  showSettings(found.settings);
  showChanged(found.changed);
  toAddress();
  showMeter(found);
  showContext(byId("context"), found.blocks, found);
  showLeftOut(found);
  showWaiting(kept);
  showRounds(found);
  if (found.tree) showTree(found.tree, found.items, kept);
  else forget();
  definitions(byId("trace"), found.trace);
  showCandidates(found);
  byId("status").textContent = `${found.order.length} of ${found.items.length} chosen, ${found.tokens} tokens`;
  if (compared.length) byId("methods-say").textContent = "The settings have changed since; compare again.";
  clearTimeout(reading);
  reading = setTimeout(read, READ_AFTER_MS);
}

async function read() {
  const of = found, mine = asked;
  try {
    let text = "";
    const onToken = (piece) => { text += piece; if (of === found) showStreamed(text); };
    const said = await called("/api/answer", { ...mine, given: of.settings }, undefined, onToken);
    if (of !== found) return;
    showAnswer(said, found);
    showContext(byId("context"), said.answer_blocks, found);
    of.said = said;
  } catch (error) {
    if (of === found) showUnread(error.message);
  }
  think();
}

// What the agent says is asked for when its part of the page is open.
async function think() {
  const mine = asked;
  if (!byId("agent").open || !found || mine === thought) return;
  thought = mine;
  replaced(byId("agent-says"), element("p", { class: "hint" }, "…"));
  try {
    const agent = await called("/api/agent", { ...mine, budget: found.settings.budget });
    if (mine === asked) showAgent(agent);
  } catch (error) {
    if (mine === asked) complain(error);
  }
}

async function compare() {
  const mine = ++run, of = asked, budget = found.settings.budget;
  const said = found.said ?? await called("/api/answer", { ...of, given: found.settings }).catch((error) => ({ error: error.message }));
  compared = [{ ...said, method: "the search above", own: true, tokens: found.tokens, chunks: found.order.length,
    units: found.unit !== "passage", found: found.found, gold: found.gold, seconds: found.seconds,
    reason: found.reason, trace: found.trace },
  ...about.methods.map((method) => ({ method, waiting: true }))];
  for (let at = 1; at < compared.length; at++) {
    showMethods(compared, budget, `${at - 1} of ${about.methods.length} methods`);
    let row;
    try {
      row = await called("/api/method", { ...of, budget, name: compared[at].method });
    } catch (error) {
      row = { method: compared[at].method, error: error.message };
    }
    if (mine !== run) return;
    compared[at] = row;
  }
  showMethods(compared, budget, `${about.methods.length} methods`);
}

async function list(at) {
  const text = byId("filter").value;
  try {
    const listed = await called(`/api/questions?${new URLSearchParams({ text, start: at })}`);
    if (text !== byId("filter").value) return;
    start = at;
    replaced(byId("questions"), listed.questions.map((one) => element("li", {}, element("button", {
      type: "button", onclick: () => { pick(one); byId("picker").open = false; byId("question").focus(); },
    }, foreign(one.question)))));
    const last = start + listed.questions.length;
    byId("range").textContent = last ? `${start + 1} to ${last} of ${listed.total.toLocaleString("en")}` : "none";
    byId("before").disabled = start === 0;
    byId("after").disabled = last >= listed.total;
    return listed;
  } catch (error) {
    complain(error);
  }
}

// Control characters are shown as \x1b in lists; the question itself is that of the data.
function pick(one) {
  picked = one;
  byId("question").value = one.question;
  return ask(one.question, one.number);
}

function submit(event) {
  event?.preventDefault();
  const question = byId("question").value;
  if (!question.trim()) return;
  ask(question, picked && picked.question === question ? picked.number : null);
}

async function begin() {
  about = await called("/api/about");
  const options = { unit: about.units, reranker: about.rerankers, policy: about.policies };
  for (const [name, values] of Object.entries(options)) {
    replaced(byId(name), values.map((value) => element("option", { value }, LABELS[value] ?? value)));
  }
  byId("iterations").max = about.max_iterations;
  byId("budget-covers").textContent = `Most tokens of the ${about.budget_for === "prompt" ? "whole prompt" : "context"}.`;
  const sources = [about.index && `index ${about.index.name}, ${about.index.chunks.toLocaleString("en")} chunks`,
    about.data && `data ${about.data.name}, ${about.data.passages.toLocaleString("en")} passages`];
  byId("about").append(" ", foreign(sources.filter(Boolean).join("; "), "small"));
  for (const name of SLIDERS) {
    byId(name).addEventListener("input", () => { wanted = settings(); showOutputs(wanted); search(); });
  }
  for (const name of SELECTS) {
    byId(name).addEventListener("change", () => { wanted = settings(); if (name === "unit") wanted.reranker = null; search(); });
  }
  byId("as-agent").addEventListener("click", () => { wanted = {}; search(); });
  byId("ask").addEventListener("submit", submit);
  byId("question").addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.shiftKey) submit(event); });
  byId("step").addEventListener("input", () => { pause(); goTo(Number(byId("step").value)); });
  byId("play").addEventListener("click", play);
  byId("compare").addEventListener("click", () => compare().catch(complain));
  byId("filter").addEventListener("input", () => list(0));
  byId("before").addEventListener("click", () => list(Math.max(0, start - 20)));
  byId("after").addEventListener("click", () => list(start + 20));
  byId("agent").addEventListener("toggle", think);
  replaced(byId("examples"), about.examples.map((question) => element("button", {
    type: "button", onclick: () => { byId("question").value = question; submit(); } }, foreign(question))));
  new ResizeObserver(redraw).observe(byId("tree-part"));
  if (about.questions) {
    byId("picker").hidden = false;
    byId("num-questions").textContent = about.questions.toLocaleString("en");
    const listed = await list(0);
    if (!fromAddress() && listed?.questions.length) await pick(listed.questions[0]);
  }
  const held = fromAddress();
  if (held) {
    byId("question").value = held.question;
    picked = held.number === null ? null : held;
    await ask(held.question, held.number, held.given);
  }
}

begin().catch(complain);
