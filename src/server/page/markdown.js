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
const isTableRule = line => line.length <= LINE_MAX && /-/.test(line) && /\|/.test(line) && TABLE_RULE.test(line);

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

/* The text's blocks: {lines, from}, where `from` is the place of the first line in the text. */
function splitBlocks(text) {
  const raw = text.split("\n");
  const lines = raw.map(line => line.replace(/\r$/, "").replace(/\t/g, "    "));
  const blocks = [];
  let from = 0, next = 0; // raw[next] begins at `from`
  for (let at = 0; at < lines.length;) {
    let end = at + 1;
    for (; next < at; next++) from += raw[next].length + 1;
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
    blocks.push({lines: lines.slice(at, end), from});
    at = end;
  }
  return blocks;
}

/* The code of a block, with that of the pieces that go on with it. */
function codeFrom(block) {
  const next = block.nextElementSibling || block.parentElement.nextElementSibling?.firstElementChild;
  const code = block.querySelector("code").textContent;
  return next && next.classList.contains("goes-on") ? `${code}\n${codeFrom(next)}` : code;
}

function codeBlock(lines) {
  const [, mark, language] = FENCE.exec(lines[0]);
  const last = lines[lines.length - 1].trim();
  const isClosed = lines.length > 1 && last.startsWith(mark) && !last.replaceAll(mark[0], "");
  const code = lines.slice(1, isClosed ? -1 : undefined).join("\n");
  const copy = button("Copy", {className: "quiet"}, () => copyText(codeFrom(copy.closest(".code")), copy));
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
      const made = renderBlock(block.lines, depth + 1);
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
    return make("blockquote", {}, ...inner.map(block => renderBlock(block.lines, depth + 1)));
  }
  if (isTable(lines, 0)) return tableBlock(lines);
  const paragraph = make("p");
  addInline(paragraph, lines.map(part => part.trim()).join("\n"));
  return paragraph;
}

// ---- a text that may be long ----

const PIECE_MAX = 8192; // characters of a block that become elements at once
const FRAME_MAX = 8192; // characters of all texts that do so before the next frame

/* Paragraphs of a line that is longer than a piece: cut at a space where there is one. */
function cutLine(line) {
  const parts = [];
  for (let rest = line; rest; rest = rest.slice(parts.at(-1).length)) {
    const space = rest.length > PIECE_MAX ? rest.lastIndexOf(" ", PIECE_MAX) : -1;
    parts.push(rest.slice(0, space > 0 ? space : PIECE_MAX));
  }
  return parts;
}

/* A long block as several of its kind, each with what makes it one: a fence, the head of a table. Lists are
 * cut between items. */
function cutBlock(lines) {
  if (lines.reduce((sum, line) => sum + line.length, 0) <= PIECE_MAX) return [lines];
  const isList = ITEM.test(lines[0]) && !RULE.test(lines[0]);
  const head = FENCE.test(lines[0]) ? lines.slice(0, 1) : isTable(lines, 0) ? lines.slice(0, 2) : [];
  const isPlain = !isList && !head.length && !/^ {0,3}>/.test(lines[0]) && !readHeading(lines[0]);
  const indent = isList ? ITEM.exec(lines[0])[1].length + 1 : 0;
  const isCut = line => !isList || (ITEM.test(line) && ITEM.exec(line)[1].length <= indent);
  const pieces = [];
  let size = PIECE_MAX;
  for (const line of (isPlain ? lines.flatMap(cutLine) : lines).slice(head.length)) {
    if (size + line.length > PIECE_MAX && isCut(line)) {
      pieces.push([...head]);
      size = 0;
    }
    pieces.at(-1).push(line);
    size += line.length + 1;
  }
  return pieces;
}

/* What is still to be shown: holders of texts, the first ones first. */
const late = {left: FRAME_MAX, holders: new Set(), frame: 0};

/* A browser lays out and draws only the slices that are seen. */
function beginSlice(holder, marks) {
  holder.lastChild?.classList.add("full");
  const slice = make("div", {className: "slice", size: 0});
  slice.classList.toggle("goes-on", marks.includes("goes-on"));
  holder.append(slice);
}

/* Makes elements until this frame's characters are used up. */
function renderMore(holder) {
  const {shown} = holder;
  while (shown.made < shown.pieces.length) {
    const {source, marks} = shown.pieces[shown.made];
    if (source.length > late.left && late.left < FRAME_MAX) break;
    shown.made++;
    const element = renderBlock(source.split("\n"));
    if (marks.length) element.classList.add(...marks);
    if (!holder.lastChild || holder.lastChild.size >= PIECE_MAX) beginSlice(holder, marks);
    holder.lastChild.append(element);
    holder.lastChild.size += source.length;
    late.left -= source.length;
  }
  if (shown.made < shown.pieces.length) late.holders.add(holder);
  else late.holders.delete(holder);
  late.frame ||= requestAnimationFrame(renderLate);
}

function renderLate() {
  late.frame = 0;
  late.left = FRAME_MAX;
  if (!late.holders.size) return;
  const isAtEnd = isNearEnd();
  for (const holder of late.holders) {
    if (holder.isConnected) renderMore(holder);
    else late.holders.delete(holder); // another chat is shown
  }
  if (isAtEnd) scrollDown(true);
}

/* Shows `text` in `holder`, a long one over several frames, and leaves the elements of blocks that did not
 * change as they are. While a text grows, only its last two blocks change: the rest is not looked at again. */
function showMarkdown(holder, text) {
  // The first `kept` pieces are those before `from`, and the first `made` ones have their elements.
  holder.shown ||= {text: "", pieces: [], from: 0, kept: 0, made: 0};
  const {shown} = holder;
  if (!text.startsWith(shown.text.slice(0, shown.from))) shown.from = shown.kept = 0;
  const pieces = shown.pieces.slice(0, shown.kept);
  const blocks = splitBlocks(text.slice(shown.from));
  const {from} = shown;
  blocks.forEach((block, i) => {
    if (i === blocks.length - 2) {
      shown.from = from + block.from;
      shown.kept = pieces.length;
    }
    cutBlock(block.lines).forEach((lines, n, all) => {
      const marks = [...n > 0 ? ["goes-on"] : [], ...n < all.length - 1 ? ["cut"] : []];
      pieces.push({source: lines.join("\n"), marks});
    });
  });
  let same = 0;
  const isSame = (a, b) => a && b && a.source === b.source && String(a.marks) === String(b.marks);
  while (same < pieces.length && isSame(pieces[same], shown.pieces[same])) same++;
  while (shown.made > same) {
    const slice = holder.lastChild;
    slice.size -= shown.pieces[--shown.made].source.length;
    slice.lastChild.remove();
    if (!slice.firstChild) slice.remove();
  }
  shown.text = text;
  shown.pieces = pieces;
  renderMore(holder);
}
