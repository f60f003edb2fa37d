/** Opens an experiment in TensorBoard. */
import { h, prose, setAttribute, setHidden, smallButton } from '../dom/dom.js';
import { Notice, type IRequestContext } from '../dom/notice.js';
import type { IBoardAnswer } from '../model/answers.js';
import type { Ask } from '../model/questions.js';
import type { ITrans } from '../model/trans.js';

const LOCAL = ['localhost', '127.0.0.1', '[::1]'];

/** Open its page in a tab, if the address can be that of this computer. */
export function openBoard({ url }: IBoardAnswer): void {
  if (LOCAL.includes(location.hostname)) {
    window.open(url, '_blank', 'noopener');
  }
}

/** What to do where a browser of another computer does not find the page. */
export function elsewhere({ tunnel }: IBoardAnswer, trans: ITrans): string {
  return trans.__(
    'If its page does not open, Jupyter runs on another computer than the browser: enter `%1` on yours first.',
    tunnel
  );
}

/** A button, and below it what became of it. */
export class BoardButton {
  readonly button: HTMLButtonElement;
  readonly node: HTMLElement;

  constructor(
    private readonly _requests: IRequestContext,
    ask: Ask
  ) {
    const { trans } = _requests;
    this._notice = new Notice({
      ..._requests,
      onCommand: async () => this._open(await ask<IBoardAnswer>('tensorboard', {})),
      slowHint: trans.__('TensorBoard starts …')
    });
    this.button = smallButton(trans.__('TensorBoard'), () => void this._start(), {
      title: trans.__('Open this experiment in TensorBoard, in a tab of the browser')
    });
    this.node = h('div', {}, this._notice.node, this._where);
  }

  private async _start(): Promise<void> {
    if (this._isBusy) {
      return;
    }
    this._setBusy(true);
    setHidden(this._where, true);
    await this._notice.ask('tensorboard');
    this._setBusy(false);
  }

  /** Not `disabled`, so that the button keeps the focus. */
  private _setBusy(isBusy: boolean): void {
    this._isBusy = isBusy;
    setAttribute(this.button, 'aria-disabled', isBusy ? 'true' : null);
    setAttribute(this.button, 'aria-busy', isBusy ? 'true' : null);
  }

  /** A browser may refuse to open a tab, so the address is shown too. */
  private _open(board: IBoardAnswer): void {
    const { trans } = this._requests;
    openBoard(board);
    const { url } = board;
    const link = h('a.det-link', { href: url, target: '_blank', rel: 'noopener' }, url);
    const parts = [trans.__('TensorBoard runs at'), link, '. ', ...prose(elsewhere(board, trans))];
    this._where.replaceChildren(...parts.filter(part => part !== null));
    setHidden(this._where, false);
  }

  private readonly _notice: Notice;
  private readonly _where = h('p.det-quiet.det-board', { role: 'status', hidden: true });
  private _isBusy = false;
}
