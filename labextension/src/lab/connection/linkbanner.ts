/** The banner with the problem of the connection and what to do, shown instead of an empty page. */
import type { IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';

import { copyButton } from '../../dom/copy.js';
import { h, setHidden, setText } from '../../dom/dom.js';
import type { IDetJupyter, LinkState } from '../tokens.js';

const SHOWN_AFTER_MS = 1000; // most connections are made before

/** Shown while the link is not up. Put `node` where the content would be. */
export class LinkBanner implements IDisposable {
  readonly node: HTMLElement;

  constructor(private readonly _shared: IDetJupyter) {
    const { trans } = _shared;
    this._retry = this._button(trans.__('Try again'), () => _shared.retry());
    this._start = this._button(trans.__('Start the master'), () => void this._startMaster());
    this._reload = this._button(trans.__('Reload the page'), () => window.location.reload());
    const copy = copyButton(trans, trans.__('Copy this command'), this._command);
    copy.className = BUTTON;
    this._line = h('div.det-LinkBanner-line', {}, this._command, copy);
    this.node = h(
      'div.jp-DetLinkBanner',
      { hidden: true },
      h('p', { role: 'status' }, this._sentence),
      this._line,
      h('div.det-LinkBanner-buttons', {}, this._start, this._retry, this._reload)
    );
    _shared.linkChanged.connect(this._show, this);
    // Shown only if connecting takes long, to avoid a flash.
    this._timer = setTimeout(() => {
      this._isLate = true;
      this._show();
    }, SHOWN_AFTER_MS);
    this._show();
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    this._isDisposed = true;
    clearTimeout(this._timer);
    Signal.clearData(this);
    this.node.remove();
  }

  private _show(): void {
    const { link, trans } = this._shared;
    setText(this._sentence, link.sentence || trans.__('Connecting to det_jupyter…'));
    setText(this._command, link.command);
    setHidden(this._line, link.command === '');
    setHidden(this._start, link.state !== 'no-master');
    setHidden(this._retry, link.state === 'connecting');
    setHidden(this._reload, !RELOADED.includes(link.state));
    const isSoon = link.state === 'connecting' && link.sentence === '' && !this._isLate;
    setHidden(this.node, link.state === 'up' || isSoon);
    this.node.dataset.state = link.state;
  }

  private async _startMaster(): Promise<void> {
    const { api, trans } = this._shared;
    this._start.disabled = true;
    setText(this._sentence, trans.__('The master is starting.'));
    try {
      await api.post('master/start');
      this._shared.retry();
    } catch (error) {
      setText(this._sentence, (error as Error).message);
    } finally {
      this._start.disabled = false;
    }
  }

  private _button(label: string, onClick: () => void): HTMLButtonElement {
    const button = h('button', { type: 'button', class: BUTTON }, label);
    button.addEventListener('click', onClick);
    return button;
  }

  private readonly _sentence = h('span');
  private readonly _command = h('code');
  private readonly _line: HTMLElement;
  private readonly _retry: HTMLButtonElement;
  private readonly _start: HTMLButtonElement;
  private readonly _reload: HTMLButtonElement;
  private readonly _timer: ReturnType<typeof setTimeout>;
  private _isLate = false;
  private _isDisposed = false;
}

const BUTTON = 'det-LinkBanner-button';
const RELOADED: readonly LinkState[] = ['mismatch', 'refused'];
