/* Markdown of models, as elements. The text is untrusted: it becomes text nodes and a fixed set of
 * elements, never HTML, and links only to http, https and mailto. Images are shown as links, so that
 * nothing is loaded. Each character is looked at a bounded number of times. */

// ---- inside a line ----

const DEPTH_MAX = 8; // of emphasis in emphasis

function safeLink(target) {
  return /^(https?:\/\/|mailto:)/i.test(target) ? target : null;
}

function linkTo(target, ...children) {
  return make("a", {href: target, target: "_blank", rel: "noopener noreferrer nofollow"}, ...children);
}

/* [text](target "title") at `at`; null: it is none. */
function readLink(text, at) {
  const match = /^!?\[([^\]\n]{0,500})\]\(\s*<?([^\s<>()]{1,2000}(?:\([^\s()]*\))?[^\s<>()]*)>?(?:\s+"[^"\n]*")?\s*\)/
    .exec(text.slice(at, at + 3000));
  return match && {length: match[0].length, label: match[1] || match[2], target: safeLink(match[2])};
}

const EMPHASIS = [["***", "strong", "em"], ["**", "strong"], ["__", "strong"], ["~~", "del"], ["*", "em"], ["_", "em"]];

/* Where the text between two equal marks ends; -1: nowhere. `dead` remembers marks without an end. */
function emphasisEnd(text, at, mark, dead) {
  const start = at + mark.length;
  if (dead.has(mark) || !text[start] || /\s/.test(text[start])) return -1;
  const isWord = mark[0] === "_";
  if (isWord && /\w/.test(text[at - 1] || "")) return -1;
  for (let end = text.indexOf(mark, start + 1); end >= 0; end = text.indexOf(mark, end + 1)) {
    const after = text[end + mark.length] || "";
    if (/\s/.test(text[end - 1]) || after === mark[0] || text[end - 1] === "\\") continue;
    if (!isWord || !/\w/.test(after)) return end;
  }
  dead.add(mark);
  return -1;
}

function addEmphasis(parent, text, at, depth, dead) {
  for (const [mark, ...tags] of EMPHASIS) {
    if (!text.startsWith(mark, at)) continue;
    const end = emphasisEnd(text, at, mark, dead);
    if (end < 0) continue;
    let inner = parent;
    for (const tag of tags) inner = inner.appendChild(make(tag));
    addInline(inner, text.slice(at + mark.length, end), depth + 1);
    return end + mark.length - at;
  }
  return 0;
}

/* Code, a link, an address or emphasis that begins at `at`: its length, 0: there is none. */
function addSpecial(parent, text, at, depth, dead) {
  const c = text[at];
  if (c === "`") {
    const ticks = /^`+/.exec(text.slice(at, at + 20))[0];
    const end = dead.has(ticks) ? -1 : text.indexOf(ticks, at + ticks.length);
    if (end < 0) {
      dead.add(ticks);
      return 0;
    }
    const code = text.slice(at + ticks.length, end);
    parent.append(make("code", {textContent: /^ .*[^ ].* $/.test(code) ? code.slice(1, -1) : code}));
    return end + ticks.length - at;
  }
  if (c === "[" || (c === "!" && text[at + 1] === "[")) {
    const link = readLink(text, at);
    if (!link) return 0;
    parent.append(link.target ? linkTo(link.target, link.label) : link.label);
    return link.length;
  }
  if (c === "h" && !/\w/.test(text[at - 1] || "")) {
    const match = /^https?:\/\/[^\s<>"'`]{1,2000}/.exec(text.slice(at, at + 2010));
    if (!match) return 0;
    const address = match[0].replace(/[.,;:!?)\]*_]+$/, "");
    parent.append(linkTo(address, address));
    return address.length;
  }
  return depth < DEPTH_MAX && "*_~".includes(c) ? addEmphasis(parent, text, at, depth, dead) : 0;
}

function addInline(parent, text, depth = 0) {
  const dead = new Set();
  let plain = "";
  const flush = () => {
    if (plain) parent.append(plain);
    plain = "";
  };
  for (let at = 0; at < text.length;) {
    const c = text[at];
    if (c === "\\" && /[!-/:-@[-`{-~]/.test(text[at + 1] || "")) {
      plain += text[at + 1];
      at += 2;
    } else if (c === "\n") {
      flush();
      parent.append(make("br"));
      at++;
    } else if ("`[!h*_~".includes(c)) {
      const holder = document.createDocumentFragment();
      const length = addSpecial(holder, text, at, depth, dead);
      if (length) {
        flush();
        parent.append(holder);
      } else {
        plain += c;
      }
      at += length || 1;
    } else {
      plain += c;
      at++;
    }
  }
  flush();
}

// ---- blocks ----

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const RULE = /^ {0,3}([-*_])\s*(?:\1\s*){2,}$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?:\s+|$)/;
const TABLE_RULE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

/* These two patterns take quadratic time for a line of spaces: a longer line is none of both. */
const LINE_MAX = 1000;
const readHeading = line => line.length <= LINE_MAX ? HEADING.exec(line) : null;
const isTableRule = line => line.length <= LINE_MAX && line.includes("-") && TABLE_RULE.test(line);

const isBlank = line => !line.trim();

function fenceEnd(lines, at) {
  const mark = FENCE.exec(lines[at])[1];
  for (let i = at + 1; i < lines.length; i++) {
    const line = lines[i].trim();
    if (line.startsWith(mark) && !line.replaceAll(mark[0], "")) return i + 1;
  }
  return lines.length; // it is still being written
}

function isTable(lines, at) {
  return lines[at].includes("|") && at + 1 < lines.length && isTableRule(lines[at + 1]);
}

function beginsBlock(lines, at) {
  const line = lines[at];
  return FENCE.test(line) || readHeading(line) !== null || RULE.test(line) || /^ {0,3}>/.test(line) ||
         isTable(lines, at);
}

function listEnd(lines, at) {
  const isOrdered = /\d/.test(ITEM.exec(lines[at])[2]);
  let i = at + 1;
  for (; i < lines.length; i++) {
    const line = lines[i];
    if (isBlank(line)) {
      const next = lines[i + 1];
      if (next === undefined || isBlank(next)) break;
      const item = ITEM.exec(next);
      if (!(item && (item[1].length || /\d/.test(item[2]) === isOrdered)) && !/^ {2,}/.test(next)) break;
    } else if (FENCE.test(line) && /^\S/.test(line)) {
      break;
    } else if (/^\S/.test(line) && !ITEM.test(line) && (isBlank(lines[i - 1]) || beginsBlock(lines, i))) {
      break;
    }
  }
  return i;
}

/* The text's blocks, each as its lines: while an answer grows, only the last one changes. */
function splitBlocks(text) {
  const lines = text.replace(/\r\n?/g, "\n").replace(/\t/g, "    ").split("\n");
  const blocks = [];
  for (let at = 0; at < lines.length;) {
    let end = at + 1;
    const line = lines[at];
    if (isBlank(line)) {
      at++;
      continue;
    }
    if (FENCE.test(line)) {
      end = fenceEnd(lines, at);
    } else if (ITEM.test(line) && !RULE.test(line)) {
      end = listEnd(lines, at);
    } else if (/^ {0,3}>/.test(line)) {
      while (end < lines.length && /^ {0,3}>/.test(lines[end])) end++;
    } else if (isTable(lines, at)) {
      while (end < lines.length && lines[end].includes("|")) end++;
    } else if (!readHeading(line) && !RULE.test(line)) {
      while (end < lines.length && !isBlank(lines[end]) && !beginsBlock(lines, end) &&
             !ITEM.test(lines[end])) end++;
    }
    blocks.push(lines.slice(at, end));
    at = end;
  }
  return blocks;
}

function codeBlock(lines) {
  const [, mark, language] = FENCE.exec(lines[0]);
  const last = lines[lines.length - 1].trim();
  const isClosed = lines.length > 1 && last.startsWith(mark) && !last.replaceAll(mark[0], "");
  const code = lines.slice(1, isClosed ? -1 : undefined).join("\n");
  const copy = button("Copy", {className: "quiet"}, () => copyText(code, copy));
  const pre = make("pre", {tabIndex: 0}, make("code", {textContent: code}));
  pre.setAttribute("aria-label", "Code");
  return make("div", {className: "code"},
              make("div", {className: "code-head"}, make("span", {textContent: language}), copy), pre);
}

function tableRow(line, tag, sides) {
  const cells = line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/);
  return make("tr", {}, ...cells.slice(0, 64).map((cell, i) => {
    const element = make(tag, {className: sides[i] || ""});
    addInline(element, cell.trim().replaceAll("\\|", "|"));
    return element;
  }));
}

function tableBlock(lines) {
  const sides = lines[1].trim().replace(/^\||\|$/g, "").split("|").map(cell => {
    const rule = cell.trim();
    return rule.endsWith(":") ? (rule.startsWith(":") ? "center" : "right") : "";
  });
  return make("div", {className: "scroller"}, make("table", {},
              make("thead", {}, tableRow(lines[0], "th", sides)),
              make("tbody", {}, ...lines.slice(2).map(line => tableRow(line, "td", sides)))));
}

function listBlock(lines, depth) {
  const first = ITEM.exec(lines[0]);
  const isOrdered = /\d/.test(first[2]);
  const list = make(isOrdered ? "ol" : "ul");
  if (isOrdered) list.start = parseInt(first[2], 10);
  const items = [];
  let indent = first[0].length;
  for (const line of lines) {
    const item = ITEM.exec(line);
    if (item && item[1].length <= first[1].length + 1) {
      items.push([line.slice(item[0].length)]);
      indent = item[0].length;
    } else {
      items[items.length - 1].push(line.replace(new RegExp(`^ {0,${Math.min(indent, 99)}}`), ""));
    }
  }
  for (const item of items) {
    const element = list.appendChild(make("li"));
    const blocks = splitBlocks(item.join("\n"));
    blocks.forEach((block, i) => {
      const made = renderBlock(block, depth + 1);
      // The first paragraph of an item needs none of a paragraph's space.
      if (i === 0 && made.tagName === "P") element.append(...made.childNodes);
      else element.append(made);
    });
  }
  return list;
}

function renderBlock(lines, depth = 0) {
  const line = lines[0];
  if (depth > DEPTH_MAX) return make("p", {textContent: lines.join("\n")});
  if (FENCE.test(line)) return codeBlock(lines);
  const heading = readHeading(line);
  if (heading) {
    // The page's own headings are h1 and h2.
    const element = make(`h${Math.min(6, heading[1].length + 2)}`);
    addInline(element, heading[2]);
    return element;
  }
  if (RULE.test(line)) return make("hr");
  if (ITEM.test(line)) return listBlock(lines, depth);
  if (/^ {0,3}>/.test(line)) {
    const inner = splitBlocks(lines.map(quoted => quoted.replace(/^ {0,3}> ?/, "")).join("\n"));
    return make("blockquote", {}, ...inner.map(block => renderBlock(block, depth + 1)));
  }
  if (isTable(lines, 0)) return tableBlock(lines);
  const paragraph = make("p");
  addInline(paragraph, lines.map(part => part.trim()).join("\n"));
  return paragraph;
}

/* Shows `text` in `holder`, and leaves the elements of blocks that did not change as they are. */
function showMarkdown(holder, text) {
  const sources = splitBlocks(text).map(lines => lines.join("\n"));
  const shown = holder.sources || [];
  let same = 0;
  while (same < sources.length && same < shown.length && sources[same] === shown[same]) same++;
  while (holder.children.length > same) holder.lastChild.remove();
  for (const source of sources.slice(same)) holder.append(renderBlock(source.split("\n")));
  holder.sources = sources;
}
