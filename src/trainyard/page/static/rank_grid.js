/** All ranks of a job as cells: colour and shape tell of their state, or of a number. */

import { Drawing } from './canvas.js';
import { COLOURINGS, rankText, summaryText } from './ranks.js';
import { colours } from './theme.js';

/** @typedef {import('./ranks.js').Rank} Rank */

const SIZES = [26, 22, 18, 15, 12, 10, 8, 7, 6, 5, 4, 3]; // of a cell with its gap, in CSS pixels
/** The part of a cell that the shape of a state fills, from below. @type {Record<string, number>} */
const FILLED = { run: 1, done: 1, wait: 0.5 };
const TITLE = 20; // height of a role's name above its cells

/** Events: `open` (detail: the replica). */
export class RankGrid extends Drawing {
  /** @type {import('./ranks.js').RankList} */
  #list = { ranks: [], columns: new Set(), median: 0 };
  #colouring = 'state';
  /** The largest height, in CSS pixels, for which cells are made smaller. */
  maxHeight = 240;
  #size = SIZES[0];
  #perLine = 1;
  /** @type {{role: string, ranks: Rank[], y: number}[]} */
  #groups = [];
  /** The replica that is pointed at, by the pointer or by keys. */
  #current = '';
  #texts = this.makeReadable('Ranks', 'grid of ranks', {
    point: (event) => this.#point((event && this.#rankAt(event)?.replica) ?? ''),
    open: (event) => this.#open(this.#rankAt(event)?.replica),
    key: (event) => this.#key(event),
  });

  /** @param {import('./ranks.js').RankList} list @param {string} colouring a name of COLOURINGS */
  show(list, colouring) {
    this.#list = list;
    this.#colouring = colouring;
    this.#texts.describe(summaryText(list));
    this.#showReadout();
    this.draw();
  }

  /** @param {number} width */
  heightFor(width) {
    /** @type {Map<string, Rank[]>} */
    const roles = new Map();
    for (const rank of this.#list.ranks) {
      const ranks = roles.get(rank.role);
      if (ranks) ranks.push(rank);
      else roles.set(rank.role, [rank]);
    }
    let height = 0;
    for (const size of SIZES) {
      this.#size = size;
      this.#perLine = Math.max(1, Math.floor(width / size));
      height = 0;
      this.#groups = [...roles].map(([role, ranks]) => {
        const y = height + TITLE;
        height = y + Math.ceil(ranks.length / this.#perLine) * size + 4;
        return { role, ranks, y };
      });
      if (height <= this.maxHeight) break;
    }
    return height;
  }

  /** @param {CanvasRenderingContext2D} context */
  paint(context) {
    const theme = colours(),
      size = this.#size,
      gap = size > 9 ? 3 : size > 4 ? 1 : 0.5;
    const look = (COLOURINGS[this.#colouring] ?? COLOURINGS.state).look;
    context.textBaseline = 'middle';
    for (const { role, ranks, y } of this.#groups) {
      context.fillStyle = theme.muted;
      context.font = '12px system-ui, sans-serif';
      context.textAlign = 'left';
      context.fillText(`${role} ${ranks.length > 1 ? ranks.length.toLocaleString('en-US') : ''}`, 0, y - TITLE / 2);
      ranks.forEach((rank, position) => {
        const left = (position % this.#perLine) * size,
          top = y + Math.floor(position / this.#perLine) * size;
        const { tone, level } = look(rank, this.#list);
        paintCell(context, theme, tone, level, left, top, size - gap);
        if (size > 20 && tone !== 'bad')
          paintIndex(context, theme, rank.index, level ?? FILLED[tone] ?? 0, left, top, size - gap);
      });
    }
    this.#paintCurrent(context, theme, gap);
  }

  /** @param {CanvasRenderingContext2D} context @param {Record<string, string>} theme @param {number} gap */
  #paintCurrent(context, theme, gap) {
    for (const { ranks, y } of this.#groups) {
      const position = this.#current ? ranks.findIndex((rank) => rank.replica === this.#current) : -1;
      if (position < 0) continue;
      context.strokeStyle = theme.text;
      context.lineWidth = 2;
      context.strokeRect(
        (position % this.#perLine) * this.#size - 1,
        y + Math.floor(position / this.#perLine) * this.#size - 1,
        this.#size - gap + 2,
        this.#size - gap + 2,
      );
    }
  }

  #rankAt(/** @type {MouseEvent} */ event) {
    const group = this.#groups.findLast(({ y }) => event.offsetY >= y);
    const column = Math.floor(event.offsetX / this.#size);
    if (!group || column >= this.#perLine) return undefined;
    return group.ranks[Math.floor((event.offsetY - group.y) / this.#size) * this.#perLine + column];
  }

  #point(/** @type {string} */ replica) {
    if (replica === this.#current) return;
    this.#current = replica;
    this.canvas.style.cursor = replica ? 'pointer' : '';
    this.#showReadout();
    this.draw();
  }

  #showReadout() {
    const rank = this.#list.ranks.find(({ replica }) => replica === this.#current);
    this.#texts.showReadout(rank ? rankText(rank) : 'Point at a rank, or use the arrow keys; Enter opens it.', !rank);
  }

  #open(/** @type {string|undefined} */ replica) {
    if (replica) this.dispatchEvent(new CustomEvent('open', { detail: replica }));
  }

  #key(/** @type {KeyboardEvent} */ event) {
    const ranks = this.#groups.flatMap((group) => group.ranks);
    const position = ranks.findIndex((rank) => rank.replica === this.#current);
    /** @type {Record<string, number>} */
    const targets = {
      ArrowRight: position + 1,
      ArrowLeft: position < 0 ? 0 : position - 1,
      ArrowDown: position < 0 ? 0 : position + this.#perLine,
      ArrowUp: position - this.#perLine,
      Home: 0,
      End: ranks.length - 1,
    };
    if (event.key === 'Enter') this.#open(this.#current);
    else if (event.key in targets)
      this.#point(ranks[Math.max(0, Math.min(ranks.length - 1, targets[event.key]))]?.replica ?? '');
    else return;
    event.preventDefault();
  }
}

/**
 * One cell. Each state has a shape of its own, so that no colour has to be told from another.
 * @param {CanvasRenderingContext2D} context @param {Record<string, string>} theme @param {string} tone
 * @param {number|null} level @param {number} left @param {number} top @param {number} size
 */
function paintCell(context, theme, tone, level, left, top, size) {
  context.fillStyle = theme[tone];
  if (level !== null) {
    const full = Math.round(size * Math.max(0, Math.min(1, level)));
    context.fillRect(left, top + size - full, size, full);
    context.fillStyle = theme.sunken;
    context.fillRect(left, top, size, size - full);
    if (tone === 'bad') {
      context.strokeStyle = theme.bad;
      context.lineWidth = 1;
      context.strokeRect(left + 0.5, top + 0.5, size - 1, size - 1);
      paintCross(context, level < 0.5 ? theme.bad : theme.surface, left, top, size);
    }
  } else if (tone === 'run') {
    context.fillRect(left, top, size, size);
  } else if (tone === 'bad') {
    context.fillRect(left, top, size, size);
    paintCross(context, theme.surface, left, top, size);
  } else if (tone === 'wait') {
    context.fillRect(left, top + size / 2, size, size / 2);
    context.strokeStyle = theme.wait;
    context.lineWidth = 1;
    context.strokeRect(left + 0.5, top + 0.5, size - 1, size - 1);
  } else if (tone === 'done') {
    const inset = size > 20 ? 0 : size / 4;
    context.beginPath();
    context.arc(left + size / 2, top + size / 2, (size - inset) / 2, 0, 2 * Math.PI);
    context.fill();
  } else {
    context.strokeStyle = theme.idle;
    context.lineWidth = 1;
    context.strokeRect(left + 0.5, top + 0.5, size - 1, size - 1);
  }
}

/**
 * The index of a rank, in colours that are read on the filled part of its cell and above it.
 * @param {CanvasRenderingContext2D} context @param {Record<string, string>} theme @param {string} index
 * @param {number} filled @param {number} left @param {number} top @param {number} size
 */
function paintIndex(context, theme, index, filled, left, top, size) {
  context.font = '10px system-ui, sans-serif';
  context.textAlign = 'center';
  const write = (/** @type {string} */ colour) => {
    context.fillStyle = colour;
    context.fillText(index, left + size / 2, top + size / 2 + 0.5);
  };
  write(filled < 1 ? theme.text : theme.surface);
  if (filled <= 0 || filled >= 1) return;
  context.save();
  context.beginPath();
  context.rect(left, top + size * (1 - filled), size, size * filled);
  context.clip();
  write(theme.surface);
  context.restore();
}

/**
 * @param {CanvasRenderingContext2D} context @param {string} colour
 * @param {number} left @param {number} top @param {number} size
 */
function paintCross(context, colour, left, top, size) {
  const inset = size / 4;
  context.strokeStyle = colour;
  context.lineWidth = Math.max(1, size / 8);
  context.beginPath();
  context.moveTo(left + inset, top + inset);
  context.lineTo(left + size - inset, top + size - inset);
  context.moveTo(left + size - inset, top + inset);
  context.lineTo(left + inset, top + size - inset);
  context.stroke();
}

customElements.define('rank-grid', RankGrid);
