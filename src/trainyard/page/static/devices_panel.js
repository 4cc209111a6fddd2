/** The GPUs of the machine, and who uses them; loaded where there are some. */

import { element, reconcile, setText } from './dom.js';
import { panel } from './job_parts.js';

/** Shows these lines in `stage`. */
export function showDevices(/** @type {HTMLElement} */ stage, /** @type {string[]} */ lines) {
  if (!stage.firstChild) stage.append(panel('gpus', 'GPUs', [], [element('ul', { class: 'commands' })]));
  stage.hidden = !lines.length;
  const list = /** @type {HTMLElement} */ (stage.querySelector('ul'));
  reconcile(list, lines, (_, index) => String(index), () => element('li'), setText);
}
