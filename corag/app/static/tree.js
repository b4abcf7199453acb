// The policy tree as an icicle: a row for each length, a cell for each order, and its growth by iteration.

import { byId, drawing, element, foreign, number, replaced } from "./dom.js";

const LETTER = 7.6; // width of a letter in pixels, about
const NARROWEST = 20;
const LISTED = 5; // children of an order that are always drawn; the others are behind a cell of their own

let tree = null;
let items = [];
let step = 0;
let selected = 0;
let focused = 0;
let unfolded = new Set();
let timer = null;

export const pathOf = (node) => {
  const path = [];
  for (; node > 0; node = tree.parent[node]) path.unshift(node);
  return path;
};
const orderOf = (node) => pathOf(node).map((one) => tree.chunk[one] + 1);
// An order as it is read: the middle of a long one is left out.
const numbers = (node) => {
  const order = orderOf(node);
  return (order.length > 12 ? [...order.slice(0, 8), "…", ...order.slice(-3)] : order).join(" → ") || "nothing yet";
};
const childrenOf = (node) => tree.childrenOf.get(node) || [];

// `kept`: whether the chunks are those of the tree before, so that the selected order stays selected.
export function showTree(given, chunks, kept) {
  const old = kept && tree && selected ? String(orderOf(selected)) : null;
  tree = given;
  items = chunks;
  tree.childrenOf = new Map();
  tree.born = new Array(tree.parent.length).fill(0);
  tree.steps.forEach((one, at) => {
    const children = Array.from({ length: one.count }, (_, k) => one.first + k);
    children.forEach((child) => { tree.born[child] = at + 1; });
    tree.childrenOf.set(one.node, children.sort((a, b) => tree.value[b] - tree.value[a] || a - b));
  });
  unfolded = new Set();
  step = tree.steps.length;
  selected = old === null ? tree.best : tree.parent.findIndex((_, node) => node && String(orderOf(node)) === old);
  if (selected < 1) selected = tree.best;
  focused = selected;
  pause();
  const slider = byId("step");
  slider.max = tree.steps.length;
  slider.value = step;
  draw();
  // A tree may be wider than the page: begin at the chosen order.
  const cell = byId("tree").querySelector(".selected rect");
  byId("tree").scrollLeft = cell ? cell.x.baseVal.value - byId("tree").clientWidth / 2 : 0;
}

function layout() {
  const wanted = new Set([0, ...pathOf(selected), ...pathOf(tree.best)]);
  tree.steps.forEach((one) => [...pathOf(one.node), ...pathOf(one.best)].forEach((node) => wanted.add(node)));
  const cells = [];
  const place = (node, depth, left) => {
    const cell = { node, depth, left, width: 1, parent: tree.parent[node] };
    cells.push(cell);
    const children = childrenOf(node);
    if (!children.length) return 1;
    const listed = children.filter((child, at) => unfolded.has(node) || at < LISTED || wanted.has(child));
    const hidden = children.length - listed.length === 1 ? 0 : children.length - listed.length;
    let width = 0;
    for (const child of hidden ? listed : children) width += place(child, depth + 1, left + width);
    if (hidden) {
      const born = Math.min(...children.map((child) => tree.born[child]));
      cells.push({ node: -1, of: node, hidden, born, depth: depth + 1, left: left + width, width: 1, parent: node });
      width += 1;
    }
    cell.width = width;
    return width;
  };
  const width = place(0, 0, 0);
  return { cells, width, depth: Math.max(...cells.map((cell) => cell.depth)) };
}

function draw() {
  byId("step-is").textContent = `${step} of ${tree.steps.length}`;
  byId("step").setAttribute("aria-valuetext", `${step} of ${tree.steps.length}`);
  const { cells, width, depth } = layout();
  const holder = byId("tree");
  const unit = Math.min(120, Math.max(NARROWEST, (holder.clientWidth - 12) / width));
  const row = Math.min(64, Math.max(36, 330 / (depth + 1)));
  const state = step ? tree.steps[step - 1] : null;
  const incumbent = step ? tree.steps[step - 1].best : 0;
  const chosen = new Set(pathOf(step === tree.steps.length ? tree.best : incumbent));
  const walked = new Set(step ? pathOf(tree.steps[step - 1].node) : []);
  const scored = tree.value.filter((_, node) => node && tree.born[node] <= step);
  const low = Math.min(...scored), spread = Math.max(...scored) - low || 1;
  const svg = drawing("svg", {
    role: "tree", "aria-label": "Policy tree", "aria-orientation": "horizontal",
    width: Math.ceil(width * unit) + 2, height: (depth + 1) * row + 2,
  });
  const drawn = cells.filter((cell) => (cell.node < 0 ? cell.born : tree.born[cell.node]) <= step);
  if (!drawn.some((cell) => cell.node === focused)) focused = 0;
  for (const cell of drawn) svg.append(cellOf(cell));
  const hadFocus = holder.contains(document.activeElement);
  replaced(holder, svg);
  if (hadFocus) svg.querySelector('[tabindex="0"]')?.focus();
  says(incumbent);
  detail(state);

  function cellOf(cell) {
    const { node } = cell;
    const box = { x: cell.left * unit + 1, y: cell.depth * row + 1, width: cell.width * unit - 2, height: row - 3, rx: 3 };
    const siblings = drawn.filter((one) => one.parent === cell.parent && one.depth === cell.depth);
    const shared = {
      role: "treeitem", "aria-level": cell.depth + 1, "aria-setsize": siblings.length,
      "aria-posinset": siblings.indexOf(cell) + 1,
    };
    // What is too wide for the screen is named at its beginning, where it is seen.
    const isWide = box.width > 240;
    const middle = { x: isWide ? box.x + 10 : box.x + box.width / 2, y: box.y + box.height / 2 + 4, class: isWide ? "wide" : "" };
    if (node < 0) {
      const open = () => { unfolded.add(cell.of); draw(); };
      return drawing("g", {
        ...shared, class: "cell more", tabindex: -1, onclick: open, onkeydown: (event) => keyed(event, cell, drawn, open),
        "aria-label": `${cell.hidden} more orders of lower value`,
      }, drawing("rect", box), drawing("text", middle, unit < 30 ? "…" : `+${cell.hidden}`));
    }
    const isExpanded = childrenOf(node).some((child) => tree.born[child] <= step);
    const share = node ? (tree.value[node] - low) / spread : 0;
    const classes = ["cell", node === 0 && "root", chosen.has(node) && "chosen", walked.has(node) && "walked",
      node === selected && "selected"];
    const label = node === 0 ? `the empty order, ${drawn.length - 1} cells below`
      : `chunk ${tree.chunk[node] + 1}: order ${numbers(node)}, value ${number(tree.value[node])}, ` +
        `${tree.tokens[node]} tokens, ${state.visits[node]} visits${chosen.has(node) ? ", on the chosen path" : ""}`;
    const choose = () => { selected = focused = node; draw(); byId("tree").querySelector('[tabindex="0"]')?.focus(); };
    return drawing("g", {
      ...shared, class: classes.filter(Boolean).join(" "), tabindex: node === focused ? 0 : -1, "--value": `${Math.round(75 * share)}%`,
      "aria-label": label, "aria-selected": String(node === selected), "data-node": node,
      "aria-expanded": childrenOf(node).length ? String(isExpanded) : null,
      onclick: choose, onkeydown: (event) => keyed(event, cell, drawn, choose),
    }, drawing("rect", box), drawing("text", middle, node === 0 ? "start" : named(node, box.width)),
    drawing("title", {}, label));
  }
}

// The number of the chunk that a cell adds, and as much of its title as there is room for.
function named(node, width) {
  const place = String(tree.chunk[node] + 1);
  const room = Math.floor(width / LETTER) - place.length - 3;
  if (room < 6) return place;
  const { title } = items[tree.chunk[node]];
  return `${place}  ${title.length > room ? `${title.slice(0, room - 1)}…` : title}`;
}

function keyed(event, cell, drawn, act) {
  const siblings = drawn.filter((one) => one.parent === cell.parent && one.depth === cell.depth);
  const at = siblings.indexOf(cell);
  const to = {
    ArrowRight: siblings[at + 1], ArrowLeft: siblings[at - 1], Home: siblings[0], End: siblings.at(-1),
    ArrowUp: drawn.find((one) => one.node === cell.parent),
    ArrowDown: cell.node < 0 ? null : drawn.find((one) => one.parent === cell.node),
  }[event.key];
  if (event.key === "Enter" || event.key === " ") act();
  else if (!["ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown", "Home", "End"].includes(event.key)) return;
  event.preventDefault();
  if (!to) return;
  const cells = [...event.currentTarget.parentNode.querySelectorAll("g")];
  cells.forEach((one) => one.setAttribute("tabindex", -1));
  if (to.node >= 0) focused = to.node;
  const next = cells[drawn.indexOf(to)];
  next.setAttribute("tabindex", 0);
  next.focus();
}

function says(incumbent) {
  const says = byId("step-says");
  if (!step) { says.textContent = "Nothing is scored yet."; return; }
  const one = tree.steps[step - 1];
  const from = one.node ? `Order ${numbers(one.node)} had the largest utility: ` : "";
  const length = pathOf(one.node).length + 1;
  says.textContent = `${from}${one.count} ${one.count > 1 ? "orders" : "order"} of ${length} ` +
    `${length > 1 ? "chunks" : "chunk"} scored. Best so far: ${numbers(incumbent)}, value ${number(tree.value[incumbent])}.` +
    (step === tree.steps.length && tree.complete ? " Nothing is left to score." : "");
}

function detail(state) {
  const node = selected;
  const panel = byId("node");
  if (!node) { replaced(panel, element("p", { class: "hint" }, "Select a cell to see its order.")); return; }
  const rows = [["value by the reranker", number(tree.value[node])], ["value as searched", number(tree.scaled[node])], ["tokens", number(tree.tokens[node], 0)]];
  if (tree.born[node] <= step) {
    rows.push(["visits n", state.visits[node]], ["mean W / n", number(state.mean[node])], ["+ c √(ln N / n)", number(state.bonus[node])],
      ["− λ cost / B", number(tree.charge[node])], ["= utility U", number(state.utility[node])]);
  } else rows.push(["scored in iteration", tree.born[node]]);
  replaced(panel,
    element("h3", {}, `Order ${numbers(node)}`, node === tree.best ? element("span", { class: "tag chosen" }, "chosen") : null),
    element("dl", { class: "terms" }, rows.map(([name, value]) => [element("dt", {}, name), element("dd", {}, String(value))]).flat()),
    element("p", { class: "hint" }, "The search sees values on a scale on which those of single chunks span 0 to 1."),
    pathOf(node).map((one) => {
      const item = items[tree.chunk[one]];
      return element("details", { open: one === node },
        element("summary", {}, `${tree.chunk[one] + 1} `, foreign(item.title), item.evidence ? element("span", { class: "tag evidence" }, "evidence") : null),
        foreign(item.text, "p", { class: "text", tabindex: 0 }));
    }));
}

export function goTo(to) {
  step = to;
  byId("step").value = step;
  draw();
}

export function pause() {
  clearInterval(timer);
  timer = null;
  byId("play").textContent = "Play";
}

export function play() {
  if (timer) { pause(); return; }
  if (step === tree.steps.length) goTo(0);
  byId("play").textContent = "Pause";
  timer = setInterval(() => {
    if (step >= tree.steps.length) pause();
    else goTo(step + 1);
  }, 700);
}

export const redraw = () => { if (tree) draw(); };
export const forget = () => { pause(); tree = null; };
