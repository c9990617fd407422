// Markdown as blocks. Each block knows its range of the source, so that one whose range has not changed keeps its elements
// while an answer is streamed. A line is {from, to}; a paragraph's words are {text, lines}, with the place of each line in
// the text (`at`) and in the source (`from`).
const mostNested = 12;  // quotes and lists inside each other; deeper ones are text

function readBlocks(source) {
  const lines = [];
  for (let from = 0; from <= source.length;) {
    const found = source.indexOf("\n", from), to = found < 0 ? source.length : found;
    lines.push({from, to: to > from && source[to - 1] === "\r" ? to - 1 : to});
    from = to + 1;
  }
  return new BlockReader(source).read(lines, 0);
}

class BlockReader {
  constructor(source) { this.source = source; }

  read(lines, depth) {
    const blocks = [];
    for (let at = 0; at < lines.length;) {
      if (this.isBlank(lines[at])) {
        ++at;
        continue;
      }
      const [block, next] = this.block(lines, at, depth);
      blocks.push({...block, from: lines[at].from, to: lines[next - 1].to});
      at = next;
    }
    return blocks;
  }

  text(line) { return this.source.slice(line.from, line.to); }
  isBlank(line) { return this.text(line).trim() === ""; }

  /// Columns of white space in front.
  indent(line) {
    let columns = 0;
    for (let at = line.from; at < line.to; ++at) {
      if (this.source[at] === " ") ++columns;
      else if (this.source[at] === "\t") columns += 4 - columns % 4;
      else break;
    }
    return columns;
  }

  /// The line without as many columns of white space in front.
  strip(line, columns) {
    let from = line.from;
    for (let done = 0; from < line.to && done < columns; ++from) {
      if (this.source[from] === "\t") done += 4 - done % 4;
      else if (this.source[from] === " ") ++done;
      else break;
    }
    return {from, to: line.to};
  }

  fence(line) {
    const found = /^ {0,3}(`{3,}|~{3,})[ \t]*(.*)$/.exec(this.text(line));
    return found && !(found[1][0] === "`" && found[2].includes("`")) ? found : null;
  }

  heading(line) { return /^ {0,3}(#{1,6})(?:[ \t]+|$)/.exec(this.text(line)); }

  isRule(line) {
    const marks = this.text(line).replace(/[ \t]/g, "");
    return this.indent(line) < 4 && marks.length >= 3 && /^(?:-*|_*|\**)$/.test(marks);
  }

  isQuote(line) { return /^ {0,3}>/.test(this.text(line)); }
  item(line) { return /^( {0,3})([-*+]|\d{1,9}[.)])([ \t]+|$)/.exec(this.text(line)); }

  /// Cells of a table's row, as lines.
  cells(line) {
    const cells = [];
    let from = line.from;
    for (let at = line.from; at < line.to; ++at) {
      if (this.source[at] === "\\") ++at;
      else if (this.source[at] === "|") {
        cells.push({from, to: at});
        from = at + 1;
      }
    }
    cells.push({from, to: line.to});
    const trimmed = cells.map(cell => {
      const text = this.text(cell), start = text.length - text.trimStart().length;
      return {from: cell.from + start, to: cell.from + start + text.trim().length};
    });
    if (trimmed.length > 1 && trimmed[0].from === trimmed[0].to) trimmed.shift();
    if (trimmed.length > 1 && trimmed.at(-1).from === trimmed.at(-1).to) trimmed.pop();
    return trimmed;
  }

  /// The alignments of a table's columns if a table begins here, else null.
  columns(lines, at) {
    if (at + 1 >= lines.length || !this.text(lines[at]).includes("|") || !this.text(lines[at + 1]).includes("-")) return null;
    const marks = this.cells(lines[at + 1]).map(cell => /^(:?)-+(:?)$/.exec(this.text(cell)));
    if (marks.some(mark => mark === null) || marks.length !== this.cells(lines[at]).length) return null;
    return marks.map(mark => mark[2] ? (mark[1] ? "center" : "right") : "left");
  }

  /// A block begins here that also ends a paragraph.
  interrupts(line) {
    const item = this.item(line);
    return this.fence(line) || this.heading(line) || this.isRule(line) || this.isQuote(line) ||
      (item && item[0].length < this.text(line).length && (!/\d/.test(item[2]) || /^1[.)]/.test(item[2])));
  }

  words(lines) {
    const words = {text: "", lines: []};
    for (const line of lines) {
      if (words.lines.length > 0) words.text += "\n";
      words.lines.push({at: words.text.length, from: line.from});
      words.text += this.text(line);
    }
    return words;
  }

  /// The block that begins at a line, and the place behind its last line.
  block(lines, at, depth) {
    const line = lines[at];
    if (this.fence(line)) return this.fencedCode(lines, at);
    if (this.indent(line) >= 4) return this.indentedCode(lines, at);
    const heading = this.heading(line);
    if (heading) {
      const words = this.words([{from: line.from + heading[0].length, to: line.to}]);
      return [{kind: "heading", level: heading[1].length, words}, at + 1];
    }
    if (this.isRule(line)) return [{kind: "rule"}, at + 1];
    if (this.isQuote(line) && depth < mostNested) return this.quote(lines, at, depth);
    if (this.item(line) && depth < mostNested) return this.list(lines, at, depth);
    const columns = this.columns(lines, at);
    if (columns) return this.table(lines, at, columns);
    return this.paragraph(lines, at);
  }

  fencedCode(lines, at) {
    const [, marks, info] = this.fence(lines[at]), indent = this.indent(lines[at]), inside = [];
    for (let next = at + 1; next < lines.length; ++next) {
      const end = /^ {0,3}(`+|~+)[ \t]*$/.exec(this.text(lines[next]));
      if (end && end[1][0] === marks[0] && end[1].length >= marks.length) {
        return [{kind: "code", language: info.trim().split(/\s/)[0], lines: inside}, next + 1];
      }
      inside.push(this.strip(lines[next], indent));
    }
    return [{kind: "code", language: info.trim().split(/\s/)[0], lines: inside}, lines.length];
  }

  indentedCode(lines, at) {
    let next = at + 1;
    while (next < lines.length && (this.isBlank(lines[next]) || this.indent(lines[next]) >= 4)) ++next;
    while (this.isBlank(lines[next - 1])) --next;
    return [{kind: "code", language: "", lines: lines.slice(at, next).map(line => this.strip(line, 4))}, next];
  }

  quote(lines, at, depth) {
    let next = at;
    const inside = [];
    for (; next < lines.length && this.isQuote(lines[next]); ++next) {
      const mark = /^ {0,3}> ?/.exec(this.text(lines[next]))[0];
      inside.push({from: lines[next].from + mark.length, to: lines[next].to});
    }
    return [{kind: "quote", blocks: this.read(inside, depth + 1)}, next];
  }

  list(lines, at, depth) {
    const first = this.item(lines[at]), kind = first[2].at(-1), items = [];
    let next = at;
    while (next < lines.length) {
      const found = this.item(lines[next]);
      if (!found || found[2].at(-1) !== kind || this.isRule(lines[next])) break;
      const [inside, end] = this.itemLines(lines, next, found);
      items.push(this.read(inside, depth + 1));
      next = end;
    }
    while (this.isBlank(lines[next - 1])) --next;
    const number = parseInt(first[2]);
    return [{kind: "list", ordered: !Number.isNaN(number), start: number, items}, next];
  }

  /// The lines of an item without its mark and indentation. Two columns are enough to belong to an item, as many models
  /// indent so.
  itemLines(lines, at, found) {
    const space = /^\t|^ {5,}/.test(found[3]) ? 1 : found[3].length;
    const begin = lines[at].from + found[1].length + found[2].length + space;
    const inside = [{from: Math.min(begin, lines[at].to), to: lines[at].to}];
    const width = found[1].length + found[2].length + Math.max(space, 1);
    let next = at + 1, blank = false, fenced = this.fence(inside[0]) !== null;
    for (; next < lines.length; ++next) {
      const line = lines[next];
      if (this.isBlank(line)) {
        inside.push(line);
        blank = true;
        continue;
      }
      const belongs = this.indent(line) >= Math.min(width, found[1].length + 2);
      if (!belongs && (blank || fenced || this.interrupts(line) || this.item(line))) break;
      inside.push(this.strip(line, width));
      if (this.fence(inside.at(-1))) fenced = !fenced;
      blank = false;
    }
    return [inside, next];
  }

  table(lines, at, columns) {
    const rows = [];
    let next = at;
    for (; next < lines.length && !this.isBlank(lines[next]); ++next) {
      if (next === at + 1) continue;
      if (next > at && (!this.text(lines[next]).includes("|") || this.interrupts(lines[next]))) break;
      rows.push(this.cells(lines[next]).slice(0, columns.length).map(cell => this.words([cell])));
    }
    return [{kind: "table", columns, rows}, next];
  }

  paragraph(lines, at) {
    let next = at + 1;
    while (next < lines.length && !this.isBlank(lines[next]) && !this.interrupts(lines[next]) && !this.columns(lines, next)) {
      ++next;
    }
    return [{kind: "paragraph", words: this.words(lines.slice(at, next).map(line => this.strip(line, 1000)))}, next];
  }
}
