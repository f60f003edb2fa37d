/** Why a trial waits, when it is expected to start, and the remedies. */
import type { IRemedyButton, IWait } from '../model/state.js';
import {
  h,
  rebuilder,
  setAttribute,
  setHidden,
  setProse,
  setText,
  smallButton
} from '../dom/dom.js';
import { copyText } from '../dom/copy.js';
import { icon } from '../dom/icons.js';
import { Notice, type IRequestContext } from '../dom/notice.js';

const COPIED_MS = 2000;

export class WaitNote {
  readonly node: HTMLElement;

  constructor(private readonly _requests: IRequestContext) {
    this._notice = new Notice(_requests);
    this.node = h(
      'div.det-waiting',
      { hidden: true },
      icon('queued'),
      h(
        'div.det-wait',
        {},
        this._sentence,
        this._expected,
        this._remedies,
        this._notice.node,
        this._told
      )
    );
  }

  update(wait: IWait | null): void {
    setHidden(this.node, wait === null);
    setProse(this._sentence, wait?.sentence ?? '');
    setText(this._expected, wait?.expected ?? '');
    setHidden(this._expected, !wait?.expected);
    this._drawRemedies(wait?.remedies ?? []);
  }

  private _remedy({ id, sentence, command, button }: IRemedyButton): HTMLElement {
    if (!command) {
      return h('li', {}, sentence);
    }
    const { trans } = this._requests;
    const code = h('code.det-command', {}, command);
    const copy = h(
      'button.det-button.det-mod-small',
      { type: 'button', 'aria-label': trans.__('Copy command %1', command) },
      icon('copy'),
      trans.__('Copy command')
    );
    copy.addEventListener('click', () => void this._copy(code, command));
    const does = button ? this._button(button, sentence, id) : null;
    return h('li', {}, `${sentence} `, h('span.det-typed', {}, does, code, copy));
  }

  private _button(label: string, sentence: string, id: string): HTMLElement {
    const onClick = (): void => {
      if (!button.hasAttribute('aria-busy')) {
        setBusy(true);
        void this._notice.ask(id).then(() => setBusy(false));
      }
    };
    const button = smallButton(label, onClick, { 'aria-description': sentence });
    const setBusy = (isBusy: boolean): void => {
      setAttribute(button, 'aria-busy', isBusy ? 'true' : null);
      setAttribute(button, 'aria-disabled', isBusy ? 'true' : null);
    };
    return button;
  }

  private async _copy(code: HTMLElement, command: string): Promise<void> {
    const { trans } = this._requests;
    this._tell(await copyText(command, code, trans, trans.__('Copied: %1', command)));
  }

  private _tell(text: string): void {
    setText(this._told, text);
    clearTimeout(this._timer);
    this._timer = setTimeout(() => setText(this._told, ''), COPIED_MS);
  }

  private readonly _notice: Notice;
  private readonly _sentence = h('p');
  private readonly _expected = h('p.det-quiet');
  private readonly _remedies = h('ul.det-remedies');
  private readonly _told = h('p.det-quiet', { role: 'status' });
  private readonly _drawRemedies = rebuilder(this._remedies, (remedies: IRemedyButton[]) =>
    remedies.map(remedy => this._remedy(remedy))
  );
  private _timer: ReturnType<typeof setTimeout> | undefined;
}
