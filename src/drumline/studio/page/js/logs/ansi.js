/**
 * Colours of terminals in the lines of a job: SGR alone, one line at a time. Everything else that a terminal would obey
 * is dropped or shown as a sign, so a line can neither hide text nor pretend to be another one.
 */

/** @typedef {{text: string, style: string}} Piece `style`: names of classes. */

// CSI (its final byte and parameters are looked at), then OSC and the like with their content, then lone escapes.
const ESCAPE =
  /\x1b\[([0-9;:<=>?]*)[ -/]*([@-~])|\x1b[\]PX^_](?:[^\x07\x1b]|\x1b(?!\\))*(?:\x07|\x1b\\|$)|\x1b[ -/]*[0-~]?|\x9b/g;
const CONTROLS = /[\x00-\x08\x0a-\x1f\x7f\x80-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;
const GREYS = 232;
const CUBE = 16;

/**
 * Return the pieces of a line, each with the classes of its colours.
 * @param {string} line
 * @returns {Piece[]}
 */
export function parseLine(line) {
  const text = lastPrint(line);
  if (!text.includes("\x1b") && !text.includes("\x9b")) {
    return [{ text: showControls(text), style: "" }];
  }
  /** @type {Piece[]} */
  const pieces = [];
  const look = { colour: -1, bold: false, faint: false, italic: false, underline: false, inverse: false };
  let from = 0;
  /** @param {number} to */
  const push = (to) => {
    if (to > from) {
      pieces.push({ text: showControls(text.slice(from, to)), style: classesOf(look) });
    }
  };
  for (const found of text.matchAll(ESCAPE)) {
    push(found.index);
    from = found.index + found[0].length;
    if (found[2] === "m") {
      obey(look, found[1]);
    }
  }
  push(text.length);
  return pieces.length ? pieces : [{ text: "", style: "" }];
}

/**
 * Return what a terminal would show of a line that was printed over itself, as progress bars do.
 * @param {string} line
 */
function lastPrint(line) {
  if (!line.includes("\r")) {
    return line;
  }
  const prints = line.split("\r").filter((one) => one !== "");
  return prints.length ? prints[prints.length - 1] : "";
}

/**
 * Return the text with a sign for each character that would move, hide or turn others.
 * @param {string} text
 */
export function showControls(text) {
  return text.replace(CONTROLS, (one) => {
    const code = one.charCodeAt(0);
    return code < 0x20 ? String.fromCharCode(0x2400 + code) : code === 0x7f ? "\u2421" : "\ufffd";
  });
}

/**
 * @param {{colour: number, bold: boolean, faint: boolean, italic: boolean, underline: boolean, inverse: boolean}} look
 * @param {string} parameters
 */
function obey(look, parameters) {
  const codes = parameters.split(/[;:]/).map(Number);
  for (let at = 0; at < codes.length; at += 1) {
    const code = codes[at];
    if (code === 38 || code === 48 || code === 58) {
      const [colour, taken] = readColour(codes.slice(at + 1));
      at += taken;
      if (code === 38) {
        look.colour = colour;
      }
    } else {
      change(look, code);
    }
  }
}

/**
 * @param {{colour: number, bold: boolean, faint: boolean, italic: boolean, underline: boolean, inverse: boolean}} look
 * @param {number} code
 */
function change(look, code) {
  if (code === 0) {
    Object.assign(look, { colour: -1, bold: false, faint: false, italic: false, underline: false, inverse: false });
  } else if (code === 1) {
    look.bold = true;
  } else if (code === 2) {
    look.faint = true;
  } else if (code === 3) {
    look.italic = true;
  } else if (code === 4) {
    look.underline = true;
  } else if (code === 7) {
    look.inverse = true;
  } else if (code === 22) {
    look.bold = look.faint = false;
  } else if (code === 23) {
    look.italic = false;
  } else if (code === 24) {
    look.underline = false;
  } else if (code === 27) {
    look.inverse = false;
  } else if (code === 39) {
    look.colour = -1;
  } else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) {
    look.colour = code % 10;
  }
}

/**
 * Return which of the eight colours is nearest, and how many parameters said so.
 * @param {number[]} codes
 * @returns {[number, number]}
 */
function readColour(codes) {
  if (codes[0] === 5) {
    return [nearestOf256(codes[1] || 0), 2];
  }
  if (codes[0] === 2) {
    return [nearest(codes[1] || 0, codes[2] || 0, codes[3] || 0), 4];
  }
  return [-1, codes.length];
}

/** @param {number} code */
function nearestOf256(code) {
  if (code < CUBE) {
    return code % 8;
  }
  if (code >= GREYS) {
    return code > GREYS + 12 ? 7 : 0;
  }
  const at = code - CUBE;
  return nearest(Math.floor(at / 36) * 51, (Math.floor(at / 6) % 6) * 51, (at % 6) * 51);
}

/**
 * The theme's own colours stand for all: a job cannot choose one that nobody can read.
 * @param {number} red
 * @param {number} green
 * @param {number} blue
 */
function nearest(red, green, blue) {
  const most = Math.max(red, green, blue);
  if (most - Math.min(red, green, blue) < 40) {
    return most > 110 ? 7 : 0;
  }
  const half = most * 0.6;
  return (red > half ? 1 : 0) + (green > half ? 2 : 0) + (blue > half ? 4 : 0);
}

/** @param {{colour: number, bold: boolean, faint: boolean, italic: boolean, underline: boolean, inverse: boolean}} look */
function classesOf(look) {
  const found = [];
  if (look.colour >= 0) {
    found.push(`a${look.colour}`);
  }
  for (const name of /** @type {const} */ (["bold", "faint", "italic", "underline", "inverse"])) {
    if (look[name]) {
      found.push(`ansi-${name}`);
    }
  }
  return found.join(" ");
}
