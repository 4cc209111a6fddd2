/** What a person may do with a job: buttons, what is asked before, and what came of it. Only in a session that may. */

import { element, reconcile, setAttribute, setText } from './dom.js';
import { RequestFailed } from './session.js';

/** @typedef {import('./store.js').JobRow} JobRow */

/** @type {Record<string, string>} */
const TITLES = { suspend: 'Suspend', resume: 'Resume', scale: 'Scale', delete: 'Delete' };

/** @param {import('./app.js').Context} context */
export function createActions({ session, store }) {
  const buttons = element('div', { class: 'toolbar', role: 'group', 'aria-label': 'Change the job' });
  const message = element('p', { role: 'status' });
  /** @type {JobRow} */
  let row,
    /** @type {import('./store.js').Actions} */
    offered,
    isWaiting = false;

  /** What is lost or changed by it, in a sentence. */
  function consequence(/** @type {string} */ verb) {
    if (verb === 'suspend') return 'Its pods are deleted: what they have not saved is lost. The job stays.';
    if (verb === 'scale') return 'Replicas that are not needed any more are deleted, those of the highest index first.';
    return store.hello.mode === 'local'
      ? 'The pods are deleted, and all that belongs to the job. The record stays in the history.'
      : 'The pods are deleted, and all that belongs to the job. Nothing of it stays in the cluster.';
  }

  /** Asks before an action. The focus returns to where it was when the dialog is closed. */
  function ask(/** @type {string} */ verb) {
    const asked = { uid: row.uid, generation: offered.generation };
    const { scale } = offered;
    const field = verb === 'scale' && scale
      ? element('input', { type: 'number', required: true, min: scale.least ?? 0, max: scale.most,
        value: scale.replicas, 'aria-describedby': 'action-bounds' })
      : null;
    const bounds = scale && [`now ${scale.replicas}`, scale.least !== null && `at least ${scale.least}`];
    if (scale && scale.most !== null) bounds?.push(`at most ${scale.most}`);
    const dialog = element(
      'dialog',
      { 'aria-labelledby': 'action-title', 'aria-describedby': 'action-text', onclose: () => dialog.remove() },
      element('h2', { id: 'action-title' }, `${TITLES[verb]} ${row.kind} ${row.name}?`),
      element('p', { id: 'action-text' }, `In namespace ${row.namespace}. ${consequence(verb)}`),
      element(
        'form',
        {
          method: 'dialog',
          onsubmit: () => void send({ verb, ...asked, ...(field && { replicas: field.valueAsNumber }) }),
        },
        field && element('label', {}, `${scale?.role} replicas `, field),
        field && element('p', { id: 'action-bounds', class: 'muted' }, bounds?.filter(Boolean).join(', ')),
        element('button', { type: 'button', autofocus: !field, onclick: () => dialog.close() }, 'Cancel'),
        ' ',
        element('button', { class: verb === 'delete' ? 'danger' : 'do' }, TITLES[verb]),
      ),
    );
    document.body.append(dialog);
    dialog.showModal();
    field?.select();
  }

  async function send(/** @type {any} */ request) {
    isWaiting = true;
    report('Waiting for the server ...', '');
    try {
      report((await (await session.post('actions', request)).json()).message, '');
    } catch (error) {
      const isRefused = error instanceof RequestFailed && error.status < 500;
      const text = error instanceof RequestFailed ? error.message : 'the server of this page does not answer';
      report(`${isRefused ? 'Not done' : 'It is not known whether it was done'}: ${text}`, 'bad');
    }
    isWaiting = false;
  }

  function report(/** @type {string} */ text, /** @type {string} */ tone) {
    setText(message, text);
    setAttribute(message, 'data-tone', tone);
  }

  return {
    root: element('div', { class: 'actions' }, buttons, message),
    /** `next` is null for a job that does not exist any more: what came of the last action is still shown. */
    show(/** @type {JobRow} */ job, /** @type {import('./store.js').Actions|null} */ next) {
      [row, offered] = [job, next ?? { generation: 0, verbs: [], scale: null }];
      const hadFocus = buttons.contains(document.activeElement);
      reconcile(
        buttons,
        offered.verbs,
        (verb) => (verb === 'resume' ? 'suspend' : verb), // one button, so that it keeps the focus
        () => element('button', { type: 'button', onclick: press }),
        (button, verb) => {
          button.value = verb;
          setText(button, `${TITLES[verb]}${verb === 'resume' ? '' : ' ...'}`);
        },
      );
      if (hadFocus && !buttons.contains(document.activeElement)) document.querySelector('h1')?.focus();
    },
  };

  function press(/** @type {Event} */ event) {
    if (isWaiting) return;
    const { value: verb } = /** @type {HTMLButtonElement} */ (event.currentTarget);
    if (verb === 'resume') void send({ verb, uid: row.uid, generation: offered.generation });
    else ask(verb);
  }
}
