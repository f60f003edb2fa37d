/** Copies texts to the clipboard. */
import type { ITrans } from '../model/trans.js';
import { h, setText } from './dom.js';
import { icon } from './icons.js';

const SAID_MS = 4000;

/** Copy a text, or select it where it is shown; returns a message for the user. */
export async function copyText(
  text: string,
  shown: Element,
  trans: ITrans,
  copied = trans.__('Copied')
): Promise<string> {
  try {
    await navigator.clipboard.writeText(text);
    return copied;
  } catch {
    // Insecure pages have no clipboard: select the text, so that the user only has to copy it.
    document.getSelection()?.selectAllChildren(shown);
    return trans.__('Selected: copy it with Ctrl+C or ⌘C.');
  }
}

/** A button that copies the text of `shown` and shows the result for a moment. */
export function copyButton(
  trans: ITrans,
  name: string,
  shown: Element,
  text = (): string => shown.textContent
): HTMLButtonElement {
  const label = trans.__('Copy');
  const said = h('span', { role: 'status' }, label);
  const button = h('button.det-button.det-mod-small', { type: 'button', title: name });
  button.append(icon('copy'), said);
  let timer: ReturnType<typeof setTimeout> | undefined;
  button.addEventListener('click', () => {
    void copyText(text(), shown, trans).then(words => {
      setText(said, words);
      clearTimeout(timer);
      timer = setTimeout(() => setText(said, label), SAID_MS);
    });
  });
  return button;
}
