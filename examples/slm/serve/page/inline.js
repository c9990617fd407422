// Markdown inside a paragraph. A text becomes a list of items, each a range of the text: {from, to}, with `code` or `line`
// (a line break), with `href` of a link, or with elements that end before it (`closes`) and begin behind it (`opens`).
const mostRuns = 400, mostBrackets = 50;  // in a paragraph: they bound the time and the depth of elements

/// The address of a link that the page opens, else null.
function safeLink(address) {
  try {
    const url = new URL(address);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

/// Where runs of backticks begin, by their length.
function backtickRuns(text) {
  const found = new Map();
  for (const run of text.matchAll(/`+/g)) {
    if (!found.has(run[0].length)) found.set(run[0].length, []);
    found.get(run[0].length).push(run.index);
  }
  return found;
}

/// True if the run that closes an emphasis can close one that this run opens.
function fits(opener, closer) {
  if (opener.mark !== closer.mark || !opener.canOpen) return false;
  const either = opener.canClose || closer.canOpen;  // such runs pair as CommonMark's rule of three says
  const three = (opener.length + closer.length) % 3 === 0 && (opener.length % 3 !== 0 || closer.length % 3 !== 0);
  return closer.mark === "~" || !(either && three);
}

/// Pairs the runs behind a place of the list: their items get the elements to open and to close.
function pairRuns(runs, bottom) {
  for (let at = bottom; at < runs.length;) {
    const closer = runs[at];
    let first = closer.canClose ? at - 1 : -1;
    while (first >= bottom && !fits(runs[first], closer)) --first;
    if (first < bottom) {
      ++at;
      continue;
    }
    const opener = runs[first], both = opener.left >= 2 && closer.left >= 2;
    opener.item.opens.unshift({tag: closer.mark === "~" ? "del" : both ? "strong" : "em"});
    ++closer.item.closes;
    for (const run of [opener, closer]) {
      run.left -= both ? 2 : 1;
      run.item.to -= both ? 2 : 1;
    }
    runs.splice(first + 1, at - first - 1);
    at = first + 1;
    if (opener.left === 0) runs.splice(--at, 1);
    if (closer.left === 0) runs.splice(at, 1);
  }
  runs.length = bottom;
}

/// A run of * _ or ~, which opens and closes as the characters around it allow.
function readRun(text, from, length, item) {
  const mark = text[from], before = text[from - 1] ?? " ", after = text[from + length] ?? " ";
  const isSpace = character => /\s/.test(character), isSign = character => /[\p{P}\p{S}]/u.test(character);
  const opens = !isSpace(after) && (!isSign(after) || isSpace(before) || isSign(before));
  const closes = !isSpace(before) && (!isSign(before) || isSpace(after) || isSign(after));
  return {mark, length, left: length, item,
          canOpen: mark === "_" ? opens && (!closes || isSign(before)) : opens,
          canClose: mark === "_" ? closes && (!opens || isSign(after)) : closes};
}

function parseInline(text) {
  const items = [], runs = [], brackets = [], backticks = backtickRuns(text);
  const plain = /[^\\`*_~[\]!<\nh]+/y, marks = /\*+|_+|~+/y, ticks = /`+/y, escape = /\\[!-/:-@[-`{-~]/y;
  const bare = /https?:\/\/[^\s<>"`*\\]{1,2000}/y, angled = /<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/y;
  const target = /\(\s{0,9}(?:<([^<>\n]{0,2000})>|((?:[^\s()]|\([^\s()]{0,500}\)){0,2000}))(?:\s{1,9}"[^"]{0,500}")?\s{0,9}\)/y;
  let at = 0;
  const match = pattern => {
    pattern.lastIndex = at;
    return pattern.exec(text);
  };
  const add = (to, more) => {
    const item = {from: at, to, closes: 0, opens: [], ...more};
    items.push(item);
    at = to;
    return item;
  };
  const addCode = length => {
    const places = backticks.get(length) ?? [];  // none: an escape took a part of the run
    while (places.length > 0 && places[0] <= at) places.shift();
    if (places.length === 0) return add(at + length);
    let from = at + length, to = places[0];
    if (text[from] === " " && text[to - 1] === " " && text.slice(from, to).trim()) {
      ++from;
      --to;
    }
    add(to, {from, code: true});
    at = places[0] + length;
  };
  const closeBracket = () => {
    const open = brackets.pop();
    ++at;
    const found = open?.active ? match(target) : null;
    const href = found ? safeLink(found[1] ?? found[2]) : null;
    if (!href) {
      --at;
      return add(at + 1);
    }
    pairRuns(runs, open.runs);
    for (const item of items.slice(open.index + 1)) delete item.href;  // no link is inside another one
    open.item.to = open.item.from;
    open.item.opens.push(open.image ? {tag: "span", title: href} : {tag: "a", href});  // no image is loaded
    add(at, {closes: 1});
    at += found[0].length;
    if (!open.image) for (const outer of brackets) outer.active &&= outer.image;
  };
  while (at < text.length) {
    const character = text[at];
    let found;
    if ((found = match(plain))) add(at + found[0].length);
    else if (character === "\n") add(at + 1, {line: true});
    else if (character === "\\") {
      if (match(escape)) add(at + 2, {from: at + 1});
      else if (text[at + 1] === "\n") add(at + 2, {line: true});
      else add(at + 1);
    } else if (character === "`") addCode(match(ticks)[0].length);
    else if ((found = match(marks))) {
      const from = at, length = found[0].length, item = add(at + length);
      if ((character !== "~" || length === 2) && runs.length < mostRuns) runs.push(readRun(text, from, length, item));
    } else if (character === "[" || (character === "!" && text[at + 1] === "[")) {
      const image = character === "!";
      if (brackets.length === mostBrackets) brackets.shift();
      brackets.push({image, active: true, index: items.length, runs: runs.length, item: add(at + (image ? 2 : 1))});
    } else if (character === "]") closeBracket();
    else if (character === "<" && (found = match(angled))) {
      const end = at + found[0].length, href = safeLink(found[1]);
      add(end - 1, {from: at + 1, ...(href ? {href} : {})});
      at = end;
    } else if (character === "h" && !/\w/.test(text[at - 1] ?? " ") && (found = match(bare))) {
      const address = found[0].replace(/[.,;:!?'_~)\]]+$/, ending => ending.startsWith(")") && found[0].includes("(") ? ")" : "");
      const href = safeLink(address);
      add(at + address.length, href ? {href} : {});
    } else add(at + 1);
  }
  pairRuns(runs, 0);
  return items;
}
