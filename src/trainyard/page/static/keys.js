/** Keys, and the list of them. */

import { element } from './dom.js';

const OFF = 'trainyard.keys.off';
const KEYS = [
  ['/', 'filter the jobs, or find in the log'],
  ['j k or arrows', 'next, previous job'],
  ['Enter', 'open'],
  ['Esc', 'back'],
  ['1 to 7', 'overview, ranks, logs, metrics, timeline, events, YAML of a job'],
  ['l', 'logs'],
  ['w', 'why'],
  ['e', 'events'],
  ['y', 'YAML'],
  ['[ ]', 'previous, next unhealthy rank'],
  ['f', 'follow the log'],
  ['Space', 'choose a job to compare, or not'],
  ['c', 'compare the chosen jobs'],
  ['?', 'this list'],
];

/** @type {HTMLDialogElement|null} */
let dialog = null;
const off = element('input', { type: 'checkbox', onchange: () => localStorage.setItem(OFF, off.checked ? '1' : '') });

function showKeys() {
  off.checked = isOff();
  dialog ??= element(
    'dialog',
    { 'aria-labelledby': 'keys-title' },
    element('h2', { id: 'keys-title' }, 'Keys'),
    element(
      'dl',
      {},
      ...KEYS.flatMap(([key, text]) => [element('dt', {}, element('kbd', {}, key)), element('dd', {}, text)]),
    ),
    element('label', {}, off, ' Keys of one character are off'),
    element('form', { method: 'dialog' }, element('button', {}, 'Close')),
  );
  document.body.append(/** @type {HTMLDialogElement} */ (dialog));
  dialog?.showModal();
}

const isOff = () => localStorage.getItem(OFF) === '1';

/**
 * An action that returns false has done nothing: the browser does what the key is there for.
 * @param {KeyboardEvent|'?'} event a key that was pressed, or the name of one whose button was
 * @param {import('./app.js').View|null} view
 */
export function handleKey(event, view) {
  if (event === '?') return showKeys();
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (document.querySelector('dialog[open]')) return;
  const target = event.target instanceof HTMLElement ? event.target : document.body;
  if (target.matches('input:not([type=checkbox]), select, textarea')) {
    if (event.key === 'Escape') target.blur();
    return;
  }
  if (event.key.length === 1 && isOff()) return;
  if (event.key === '?') return showKeys();
  // A button or a link does what it is there for, and a widget has the arrows for itself.
  if (event.key === 'Enter' && target.matches('a, button, summary')) return;
  if (event.key === ' ' && target.matches('input, button, summary')) return;
  const action = view?.keys[event.key];
  if (action && action() !== false) event.preventDefault();
}
