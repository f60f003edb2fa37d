/** Why a trial waits, when it is expected to start, and what to type to have it start sooner. */
import type { IRemedy, IWait } from '../model/state.js';
import { h, rebuilder, setHidden, setText } from '../dom/dom.js';
import { icon } from '../dom/icons.js';
import type { ITrans } from '../model/trans.js';

const COPIED_MS = 2000;

export class WaitNote {
  readonly node: HTMLElement;

  constructor(private readonly _trans: ITrans) {
    this.node = h(
      'div.det-waiting',
      { hidden: true },
      icon('queued'),
      h('div.det-wait', {}, this._sentence, this._expected, this._remedies, this._told)
    );
  }

  update(wait: IWait | null): void {
    setHidden(this.node, wait === null);
    setText(this._sentence, wait?.sentence ?? '');
    setText(this._expected, wait?.expected ?? '');
    setHidden(this._expected, !wait?.expected);
    this._drawRemedies(wait?.remedies ?? []);
  }

  private _remedy({ sentence, command }: IRemedy): HTMLElement {
    if (!command) {
      return h('li', {}, sentence);
    }
    const code = h('code.det-command', {}, command);
    const button = h(
      'button.det-button.det-mod-small',
      { type: 'button', 'aria-label': this._trans.__('Copy command %1', command) },
      icon('copy'),
      this._trans.__('Copy command')
    );
    button.addEventListener('click', () => void this._copy(code, command));
    return h('li', {}, `${sentence} `, h('span.det-typed', {}, code, button));
  }

  private async _copy(code: HTMLElement, command: string): Promise<void> {
    try {
      await navigator.clipboard.writeText(command);
      this._tell(this._trans.__('Copied: %1', command));
    } catch {
      // Pages that are not secure have no clipboard: leave only one key to press.
      document.getSelection()?.selectAllChildren(code);
      this._tell(this._trans.__('Selected: copy it with Ctrl+C or ⌘C.'));
    }
  }

  private _tell(text: string): void {
    setText(this._told, text);
    clearTimeout(this._timer);
    this._timer = setTimeout(() => setText(this._told, ''), COPIED_MS);
  }

  private readonly _sentence = h('p');
  private readonly _expected = h('p.det-quiet');
  private readonly _remedies = h('ul.det-remedies');
  private readonly _told = h('p.det-quiet', { role: 'status' });
  private readonly _drawRemedies = rebuilder(this._remedies, (remedies: IRemedy[]) =>
    remedies.map(remedy => this._remedy(remedy))
  );
  private _timer: ReturnType<typeof setTimeout> | undefined;
}
