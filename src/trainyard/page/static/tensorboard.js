/** The button that opens the TensorBoard of a job, in a tab and at an address of its own. */

import { element, setText } from './dom.js';

/** Opens a link in another tab, which gets no handle of this one. */
function openTab(/** @type {string} */ url) {
  const link = element('a', { href: url, target: '_blank', rel: 'noopener noreferrer' });
  document.body.append(link);
  link.click();
  link.remove();
}

/** @param {import('./session.js').Session} session */
export function tensorBoardButton(session) {
  let uid = '',
    refused = '';
  const button = element('button', { type: 'button', class: 'quiet', onclick: () => void open() }, 'TensorBoard ↗');
  const message = element('span', { role: 'status' });
  const root = element('span', { class: 'tensorboard', hidden: true }, button, ' ', message);

  async function open() {
    try {
      refused = '';
      openTab((await (await session.post('forward', { job: uid })).json()).url);
    } catch (error) {
      refused = /** @type {Error} */ (error).message;
    }
    setText(message, refused);
  }

  return {
    root,
    /** @param {string} job its uid @param {{pod: string, message: string}|null|undefined} board null: it has none */
    show(job, board) {
      uid = job;
      root.hidden = !board;
      button.hidden = !board?.pod;
      if (board) setText(message, board.pod ? refused : `TensorBoard does not run: ${board.message}`);
    },
  };
}
