// Elements from plain data. Texts become text nodes only, never markup.

export function element(tag, settings = {}, ...children) {
  return filled(document.createElement(tag), settings, children);
}

export function drawing(tag, settings = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), settings, children);
}

function filled(made, settings, children) {
  for (const [name, value] of Object.entries(settings)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) made.style.setProperty(name, value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false));
  return made;
}

export const byId = (id) => document.getElementById(id);

// A text of others: its direction is its own and does not spill over to what is beside it.
export const foreign = (text, tag = "bdi", settings = {}) => element(tag, { dir: "auto", ...settings }, text);

export const replaced = (parent, ...children) => parent.replaceChildren(...children.flat(Infinity).filter(Boolean));

export function number(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  return Number.isInteger(value) && digits === 0 ? value.toLocaleString("en") : value.toFixed(digits);
}

export function bar(share, label, kind = "") {
  const width = `${100 * Math.min(1, Math.max(0, share))}%`;
  return element("span", { class: `bar ${kind}` }, element("i", { "--width": width }), element("b", {}, label));
}

export function definitions(list, pairs) {
  replaced(list, pairs.map(([name, value]) => [element("dt", {}, name), foreign(value, "dd")]).flat());
}

// With `onToken`, an answer may come in lines: pieces, which it is called with, and in the last line the whole.
export async function called(path, body, signal, onToken) {
  const settings = { signal };
  if (body !== undefined) {
    Object.assign(settings, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
    });
  }
  let response;
  try {
    response = await fetch(path, settings);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer; is corag app still running?");
  }
  const inLines = response.headers.get("content-type").includes("ndjson");
  const answer = inLines ? await lastLine(response, onToken) : await response.json();
  if (!response.ok || answer.error) throw new Error(answer.error);
  return answer;
}

async function lastLine(response, onToken) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "", last = null;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const lines = (text + value).split("\n");
    text = lines.pop();
    for (const one of lines.filter(Boolean).map((line) => JSON.parse(line))) {
      if ("piece" in one) onToken?.(one.piece);
      else last = one;
    }
  }
  if (!last) throw new Error("The answer broke off; the terminal that runs corag app may say why.");
  return last;
}
