// Elements of a text. A model's text only becomes text nodes: no element, attribute or address is taken from it but the
// addresses of links that safeLink permits.

/// Puts ranges of a text into elements, with the drafted ranges ([from, to], ascending) tinted.
class Painter {
  constructor(source, drafted) {
    this.source = source;
    this.drafted = drafted;
  }

  put(parent, from, to) {
    let low = 0, high = this.drafted.length;  // the first range that ends behind `from`
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.drafted[middle][1] <= from) low = middle + 1;
      else high = middle;
    }
    while (from < to) {
      const [begin, end] = this.drafted[low] ?? [to, to];
      const tinted = begin <= from, until = Math.min(to, tinted ? end : begin);
      this.append(parent, this.source.slice(from, until), tinted);
      from = until;
      if (tinted) ++low;
    }
  }

  append(parent, text, tinted) {
    let last = parent.lastChild;
    if (tinted) {
      if (!(last instanceof HTMLElement) || last.className !== "drafted") {
        last = document.createElement("span");
        last.className = "drafted";
        parent.append(last);
      }
      parent = last;
      last = parent.lastChild;
    }
    if (last?.nodeType === Node.TEXT_NODE) last.appendData(text);
    else parent.append(text);
  }
}

function renderInline(parent, words, painter) {
  const stack = [parent];
  let line = 0;
  const put = (target, from, to) => {
    while (line + 1 < words.lines.length && words.lines[line + 1].at <= from) ++line;
    for (let k = line; from < to; ++k) {
      const next = words.lines[k + 1]?.at ?? Infinity, shift = words.lines[k].from - words.lines[k].at;
      painter.put(target, from + shift, Math.min(to, next) + shift);
      from = Math.min(to, next);
    }
  };
  const make = (tag, more) => {
    const element = document.createElement(tag);
    if (more.href) {
      element.href = more.href;
      element.rel = "noopener noreferrer";
      element.target = "_blank";
    }
    if (more.title) {
      element.className = "image";
      element.title = more.title;
    }
    stack.at(-1).append(element);
    return element;
  };
  for (const item of parseInline(words.text)) {
    for (let n = 0; n < item.closes; ++n) stack.pop();
    if (item.line) make("br", {});
    else if (item.code) put(make("code", {}), item.from, item.to);
    else if (item.href) put(make("a", item), item.from, item.to);
    else put(stack.at(-1), item.from, item.to);
    for (const opened of item.opens) stack.push(make(opened.tag, opened));
  }
}

function renderCode(block, painter) {
  const figure = document.createElement("figure"), caption = document.createElement("figcaption");
  const name = document.createElement("span"), pre = document.createElement("pre"), code = document.createElement("code");
  name.textContent = block.language;
  block.lines.forEach((line, k) => {
    if (k > 0) {
      const end = painter.source.indexOf("\n", block.lines[k - 1].to);
      painter.put(code, end, end + 1);
    }
    painter.put(code, line.from, line.to);
  });
  caption.append(name, copyButton("Copy code", () => code.textContent));
  pre.tabIndex = 0;  // so that the keyboard scrolls it
  pre.append(code);
  figure.append(caption, pre);
  return figure;
}

function renderTable(block, painter) {
  const frame = document.createElement("div"), table = frame.appendChild(document.createElement("table"));
  frame.className = "table";
  frame.tabIndex = 0;
  block.rows.forEach((row, k) => {
    const line = (k === 0 ? table.createTHead() : table.tBodies[0] ?? table.createTBody()).insertRow();
    row.forEach((words, column) => {
      const cell = line.appendChild(document.createElement(k === 0 ? "th" : "td"));
      cell.className = block.columns[column];
      renderInline(cell, words, painter);
    });
  });
  return frame;
}

function renderBlock(block, painter) {
  if (block.kind === "code") return renderCode(block, painter);
  if (block.kind === "table") return renderTable(block, painter);
  if (block.kind === "rule") return document.createElement("hr");
  const tags = {paragraph: "p", quote: "blockquote", heading: "h" + Math.min(6, block.level + 1), list: block.ordered ? "ol" : "ul"};
  const element = document.createElement(tags[block.kind]);
  if (block.kind === "list") {
    if (block.ordered) element.start = block.start;
    for (const blocks of block.items) {
      element.appendChild(document.createElement("li")).append(...blocks.map(inner => renderBlock(inner, painter)));
    }
  } else if (block.kind === "quote") {
    element.append(...block.blocks.map(inner => renderBlock(inner, painter)));
  } else {
    renderInline(element, block.words, painter);
  }
  return element;
}

/// Shows a text that only grows. The blocks that did not change keep their elements.
class MarkdownView {
  constructor(element) {
    this.element = element;
    this.shown = [];  // blocks
  }

  show(source, drafted) {
    const painter = new Painter(source, drafted), blocks = readBlocks(source);
    let same = 0;
    while (same < Math.min(blocks.length, this.shown.length) - 1 && blocks[same].from === this.shown[same].from &&
           blocks[same].to === this.shown[same].to) {
      ++same;
    }
    while (this.element.childNodes.length > same) this.element.lastChild.remove();
    for (const block of blocks.slice(same)) this.element.append(renderBlock(block, painter));
    this.shown = blocks;
  }
}
