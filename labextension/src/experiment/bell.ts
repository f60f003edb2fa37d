/** A switch in the header for a browser notification when the experiment ends. */
import { h, setAttribute, setHidden } from '../dom/dom.js';
import { icon } from '../dom/icons.js';
import { isEnded } from '../model/clock.js';
import type { Status } from '../model/state.js';
import type { ITrans } from '../model/trans.js';

interface IEnding {
  id: number;
  name: string;
  status: Status;
  status_word: string;
  message: string;
}

/** Requests permission when the switch is pressed. It works only while the page is open. */
export class Bell {
  readonly node: HTMLButtonElement;

  constructor(
    private readonly _trans: ITrans,
    private readonly _say: (text: string) => void
  ) {
    const label = _trans.__('Notify me when it ends');
    this.node = h(
      'button.det-button.det-mod-bare.det-bell',
      { type: 'button', title: label, 'aria-label': label, 'aria-pressed': 'false' },
      icon('bell')
    );
    this.node.addEventListener('click', () => void this._toggle());
  }

  /** Accept a state; also called while the view is not visible. */
  update(state: IEnding): void {
    const hasEnded = isEnded(state.status);
    if (this._isOn && hasEnded) {
      this._set(false);
      new Notification(`${state.name}: ${state.status_word}`, {
        body: state.message || this._trans.__('experiment %1', state.id),
        tag: `det-experiment-${state.id}` // the browser shows one notification for all views of the experiment
      });
    }
    setHidden(this.node, hasEnded);
  }

  private async _toggle(): Promise<void> {
    if (this._isOn) {
      this._set(false);
      return;
    }
    const permission =
      'Notification' in globalThis ? await Notification.requestPermission() : 'unavailable';
    this._set(permission === 'granted');
    if (permission === 'denied') {
      this._say(this._trans.__('The browser does not allow this page to notify you.'));
    } else if (permission === 'unavailable') {
      const why = this._trans.__(
        'This browser has no notifications here; it needs https, or an address on localhost.'
      );
      this._say(why);
    }
  }

  private _set(isOn: boolean): void {
    this._isOn = isOn;
    setAttribute(this.node, 'aria-pressed', String(isOn));
  }

  private _isOn = false;
}
