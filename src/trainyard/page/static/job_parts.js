/** Parts that the views of a job and of a rank share. */

import { copyButton, element, reconcile, setAttribute, setState, setText, stateLabel } from './dom.js';
import { clockTime, dateTime } from './format.js';
import './virtual_table.js';

/**
 * @typedef {import('./store.js').Finding} Finding
 * @typedef {import('./store.js').EventView} EventView
 */

/**
 * A part of a view with its title.
 * @param {string} name @param {string} title @param {(Node|string)[]} tools @param {Node[]} content
 */
export function panel(name, title, tools, content) {
  return element(
    'section',
    { class: `panel ${name}`, 'aria-label': title },
    element('header', {}, element('h2', {}, title), ...tools),
    ...content,
  );
}

/** Text with `code` in backquotes. */
function withCode(/** @type {string} */ text) {
  return text.split('`').map((part, index) => (index % 2 ? element('code', {}, part) : part));
}

/** What is wrong, where that is seen, and what to do. */
export function findingsBox() {
  const list = element(
    'ul',
    { class: 'findings' },
    element('li', { class: 'finding muted' }, 'Looking at the job ...'),
  );
  const root = element('section', { class: 'why', 'aria-label': 'Why' }, list);
  let drawn = '';
  return {
    root,
    show(/** @type {Finding[]|undefined} */ findings) {
      const text = JSON.stringify(findings);
      if (!findings || text === drawn) return;
      drawn = text;
      list.replaceChildren(
        ...findings.map((finding) =>
          element(
            'li',
            { class: 'finding', 'data-level': finding.level },
            element('p', { class: 'what' }, element('span', { class: 'level' }, finding.level), ' ', finding.what),
            finding.where || finding.evidence.length
              ? element(
                  'div',
                  { class: 'evidence' },
                  finding.where ? element('p', { class: 'muted' }, `seen in ${finding.where}`) : null,
                  finding.evidence.length
                    ? element('pre', { tabindex: '0', 'aria-label': 'Evidence' }, finding.evidence.join('\n'))
                    : null,
                )
              : null,
            finding.fix ? element('p', { class: 'fix' }, element('b', {}, 'Do: '), ...withCode(finding.fix)) : null,
          ),
        ),
      );
    },
  };
}

/** Events, the newest first; `limit`: how many are shown. */
export function eventsTable() {
  const table = /** @type {import('./virtual_table.js').VirtualTable} */ (
    element('virtual-table', { class: 'events wrap' })
  );
  const empty = element('p', { class: 'muted' }, 'No events.');
  table.define(
    'Events',
    [
      {
        name: 'time',
        title: 'Time',
        update: (cell, event) => {
          setText(cell, clockTime(event.time));
          setAttribute(cell, 'title', dateTime(event.time));
        },
      },
      {
        name: 'reason',
        title: 'Reason',
        create: stateLabel,
        update: (cell, { reason, count, type }) => {
          const text = `${reason}${count > 1 ? ` ×${count}` : ''}`;
          setState(/** @type {Element} */ (cell.firstChild), text, type === 'Warning' ? 'wait' : 'none');
        },
      },
      { name: 'object', title: 'Object', update: (cell, event) => setText(cell, event.object) },
      { name: 'message', title: 'Message', update: (cell, event) => setText(cell, event.message) },
    ],
    (event) => event.key,
  );
  return {
    root: element('div', {}, table, empty),
    show(/** @type {EventView[]} */ events, limit = Infinity) {
      const seen = new Map();
      const rows = events
        .map((event) => {
          const key = `${event.object}/${event.reason}/${event.message}`,
            number = (seen.get(key) ?? 0) + 1;
          seen.set(key, number);
          return { ...event, key: `${key}/${number}` };
        })
        .reverse()
        .sort((a, b) => (b.time ?? 0) - (a.time ?? 0))
        .slice(0, limit);
      empty.hidden = rows.length > 0;
      table.hidden = !rows.length;
      table.setRows(rows);
    },
  };
}

/** Lines to copy into a terminal. */
export function commandLines() {
  const list = element('ul', { class: 'commands' });
  return {
    root: list,
    show: (/** @type {string[]} */ commands) =>
      reconcile(
        list,
        commands,
        (command) => command,
        (command) =>
          element('li', {}, element('code', {}, command), copyButton(() => command))
      ),
  };
}

/** A choice of one of a few: pressed buttons. */
export function choice(/** @type {string} */ label, /** @type {(name: string) => void} */ onChoice) {
  const root = element('div', { class: 'parts', role: 'group', 'aria-label': label });
  return {
    root,
    show: (/** @type {[string, string][]} */ options, /** @type {string} */ chosen) =>
      reconcile(
        root,
        options,
        ([name]) => name,
        ([name, title]) => element('button', { type: 'button', onclick: () => onChoice(name) }, title),
        (button, [name]) => setAttribute(button, 'aria-pressed', name === chosen),
      ),
  };
}
