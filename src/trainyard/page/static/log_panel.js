/** The log of a job or of a replica: the newest lines as they come, or a file by ranges; the whole as a download. */

import { element, reconcile, setAttribute, setText } from './dom.js';
import { bytes, count } from './format.js';
import './log_lines.js';

/**
 * @typedef {{file: string, replica: string, attempt: number, container: string, run: number,
 *   size: number|null}} LogFile `size`: null if the server does not know it
 * @typedef {import('./log_lines.js').Line} Line
 */

const BLOCK = 256 * 1024; // bytes of a range
const SUGGESTIONS = 12;
const WHOLE_LOG = 'The whole log of a rank has them: choose a rank, then Download.';

/** Where the first whole line of a block begins, which may begin in the middle of one; 0 if there is no whole line. */
function firstLine(/** @type {Uint8Array} */ data) {
  const begin = data.indexOf(10) + 1;
  return begin < data.length ? begin : 0;
}

/**
 * @param {import('./app.js').Context} context
 * @param {string} uid of the job
 * @param {{replica: string, isEnded: boolean, hasReplicaChoice: boolean, replicas: () => string[],
 *   topicsChanged: () => void}} options
 *   `replica`: whose log is shown first; "" for all
 */
export function createLogPanel({ session, store, live }, uid, options) {
  let replica = options.replica;
  /** @type {LogFile[]} */
  let files = [];
  /** The file that is shown; "" for the lines as they come. */
  let file = '';
  let first = 0,
    next = 0,
    isLoading = false,
    partial = new Uint8Array();
  const listeners = new AbortController(), { signal } = listeners;
  const lines = /** @type {import('./log_lines.js').LogLines} */ (element('log-lines', {}));
  const suggestions = element('datalist', { id: `replicas-${Math.random().toString(36).slice(2)}` });
  const chooser = element('input', {
    type: 'text',
    class: 'replica-choice',
    placeholder: 'all ranks',
    'aria-label': 'Rank',
    autocomplete: 'off',
    spellcheck: 'false',
    list: suggestions.id,
    oninput: () => {
      suggest();
      if (!chooser.value || options.replicas().includes(chooser.value)) choose(chooser.value);
    },
    onfocus: () => suggest(),
    onchange: () => choose(chooser.value.trim()),
  });
  const source = element('select', { 'aria-label': 'Run', onchange: () => openFile(source.value) });
  const toggleFollow = () => {
    lines.follows = !lines.follows;
  };
  const follow = element('button', { type: 'button', 'aria-pressed': 'true', onclick: toggleFollow }, 'Follow');
  const find = element('input', {
    type: 'search',
    placeholder: 'find',
    'aria-label': 'Find in the log',
    spellcheck: 'false',
    oninput: () => lines.find(find.value),
    onkeydown: (/** @type {KeyboardEvent} */ event) => {
      if (event.key === 'Enter') lines.findNext(event.shiftKey ? 1 : -1);
    },
  });
  const matches = element('span', { class: 'muted matches', role: 'status' });
  const whole = element('button', { type: 'button', onclick: download }, 'Download');
  const earlier = element('button', { type: 'button', class: 'quiet earlier', hidden: true, onclick: loadEarlier });
  const message = element('p', { class: 'muted empty-log' });
  const root = element(
    'div',
    { class: 'log' },
    element(
      'div',
      { class: 'toolbar' },
      options.hasReplicaChoice ? chooser : null,
      suggestions,
      source,
      follow,
      find,
      matches,
      earlier,
      whole,
    ),
    element('div', { class: 'log-stage' }, lines, message),
  );
  chooser.value = replica;

  const topicReplica = () => replica || '*';
  const topics = () => (file || options.isEnded ? [] : [`logs:${uid}:${topicReplica()}`]);

  function suggest() {
    const text = chooser.value.toLowerCase();
    const names = options
      .replicas()
      .filter((name) => name.includes(text))
      .slice(0, SUGGESTIONS);
    reconcile(suggestions, names, (name) => name, (name) => element('option', { value: name }));
  }

  function choose(/** @type {string} */ name) {
    if (name === replica) return;
    replica = name;
    chooser.value = name;
    file = '';
    restart();
    void loadFiles();
  }

  /** Empties the lines, for another source. */
  function restart() {
    lines.clear(!file && !replica);
    lines.follows = true;
    partial = new Uint8Array();
    [first, next] = [0, 0];
    earlier.hidden = true;
    showMessage();
    options.topicsChanged();
  }

  function showMessage(text = '') {
    const waiting = options.isEnded ? '' : 'No lines yet.';
    setText(message, text || (lines.length ? '' : waiting));
  }

  async function loadFiles() {
    try {
      files = (await (await session.request(`jobs/${uid}/logs`)).json()).files;
    } catch (error) {
      if (!lines.length) showMessage(textOf(error));
      return;
    }
    const own = files.filter((entry) => entry.replica === replica);
    const choices = options.isEnded ? [] : [['', 'as it comes']];
    for (const entry of own) choices.push([entry.file, runTitle(entry, own)]);
    reconcile(
      source,
      choices,
      ([name]) => name,
      ([name]) => element('option', { value: name }),
      (option, [, title]) => setText(option, title),
    );
    source.hidden = !own.length;
    whole.disabled = !wholeFile();
    setAttribute(whole, 'title', wholeFile() ? 'The whole file' : 'Choose a rank first: each has files of its own');
    if (options.isEnded && !file) {
      if (own.length) openFile(own[own.length - 1].file);
      else showMessage(files.length ? 'The job has ended: choose a rank.' : 'No log was kept.');
    }
    source.value = file;
  }

  /** The container is named where a replica has several. */
  function runTitle(/** @type {LogFile} */ entry, /** @type {LogFile[]} */ own) {
    const container = own.some((other) => other.container !== entry.container) ? ` of ${entry.container}` : '';
    const size = entry.size === null ? '' : `, ${bytes(entry.size)}`;
    return `attempt ${entry.attempt}, run ${entry.run}${container}${size}`;
  }

  /** Whether the file may get longer. A log that the API gives only as a whole is not read again and again. */
  const isGrowing = () => !options.isEnded && files.some((entry) => entry.file === file && entry.size !== null);
  /** The file that a download takes: the shown one, or the newest of the replica. */
  const wholeFile = () => file || files.filter((entry) => entry.replica === replica).at(-1)?.file || '';

  function openFile(/** @type {string} */ name) {
    file = name;
    source.value = name;
    restart();
    if (file) void loadRange(-BLOCK);
  }

  async function request(/** @type {number} */ offset, limit = BLOCK) {
    const name = file.split('/').map(encodeURIComponent).join('/');
    const path = `jobs/${uid}/logs/${name}?offset=${offset}&limit=${limit}`;
    const response = await session.request(path);
    const data = new Uint8Array(await response.arrayBuffer());
    const start = Number(response.headers.get('X-Log-Offset'));
    return {
      data,
      start,
      next: Number(response.headers.get('X-Log-Next') ?? start + data.length),
      size: Number(response.headers.get('X-Log-Size')),
    };
  }

  /** Adds the lines from `offset` on; a line that is not whole yet waits for its rest. */
  async function loadRange(/** @type {number} */ offset) {
    if (isLoading) return;
    isLoading = true;
    const requested = file;
    try {
      const part = await request(offset);
      if (requested !== file) return;
      if (offset < 0) first = part.start;
      next = part.next;
      const data = new Uint8Array(partial.length + part.data.length);
      data.set(partial);
      data.set(part.data, partial.length);
      const begin = offset < 0 && part.start > 0 ? firstLine(data) : 0;
      if (offset < 0) first += begin;
      const end = data.lastIndexOf(10) + 1;
      partial = data.slice(Math.max(begin, end));
      lines.appendLines(split(data.subarray(begin, end)));
      if (partial.length && options.isEnded && next >= part.size) {
        lines.appendLines(split(partial));
        partial = new Uint8Array();
      }
      showEarlier();
      showMessage(lines.length ? '' : 'This log is empty.');
    } catch (error) {
      showMessage(textOf(error));
    } finally {
      isLoading = false;
      if (requested !== file && file) void loadRange(-BLOCK);
    }
  }

  async function loadEarlier() {
    if (isLoading || !first) return;
    isLoading = true;
    const requested = file;
    try {
      const start = Math.max(0, first - BLOCK);
      const part = await request(start, first - start);
      if (requested !== file) return;
      const begin = start > 0 ? firstLine(part.data) : 0;
      lines.follows = false;
      lines.prependLines(split(part.data.subarray(begin)));
      first = start + begin;
      showEarlier();
    } catch (error) {
      showMessage(textOf(error));
    } finally {
      isLoading = false;
      if (requested !== file && file) void loadRange(-BLOCK);
    }
  }

  function showEarlier() {
    earlier.hidden = !first;
    setText(earlier, `Earlier lines (${bytes(first)})`);
  }

  /** @returns {Line[]} */
  function split(/** @type {Uint8Array} */ data) {
    if (!data.length) return [];
    return new TextDecoder()
      .decode(data)
      .replace(/\n$/, '')
      .split('\n')
      .map((text) => ({ replica, text }));
  }

  async function download() {
    try {
      await session.download(`jobs/${uid}/logs/${wholeFile()}`);
    } catch (error) {
      showMessage(textOf(error));
    }
  }

  const textOf = (/** @type {any} */ error) => (error?.message ? `The log cannot be read: ${error.message}` : '');

  lines.addEventListener('follow', (event) =>
    setAttribute(follow, 'aria-pressed', /** @type {CustomEvent} */ (event).detail),
  );
  lines.addEventListener('find', (event) => {
    const { position, total } = /** @type {CustomEvent} */ (event).detail;
    setText(matches, find.value ? (total ? `${count(position)} of ${count(total)}` : 'none') : '');
  });
  store.addEventListener(
    'log',
    (event) => {
      const frame = /** @type {CustomEvent} */ (event).detail;
      if (frame.uid !== uid || file) return;
      /** @type {Line[]} */
      const shown = frame.lines
        .filter((/** @type {string[]} */ [name]) => !replica || name === replica)
        .map((/** @type {string[]} */ [name, text]) => ({ replica: name, text }));
      if (frame.leftOut)
        shown.unshift({
          replica: '',
          text: `${bytes(frame.leftOut)} not shown: too fast. ${WHOLE_LOG}`,
          isNote: true,
        });
      lines.appendLines(shown);
      showMessage();
    },
    { signal },
  );
  // The server begins with the last lines again.
  live.addEventListener('connected', () => { if (!file) lines.clear(!replica); }, { signal });
  live.addEventListener('tick', () => { if (isGrowing() && lines.follows) void loadRange(next); }, { signal });
  restart();
  void loadFiles();

  return {
    root,
    topics,
    choose,
    find: () => find.select(),
    follow: toggleFollow,
    destroy: () => listeners.abort(),
  };
}
