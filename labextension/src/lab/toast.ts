/** One of JupyterLab's notifications, whose text is replaced in place as long as it is listed. */
import { Notification } from '@jupyterlab/apputils';

export class Toast {
  constructor() {
    document.addEventListener(
      'click',
      ({ target }) => {
        // JupyterLab only hides what is closed, and emits no signal.
        this._isSeen ||= target instanceof Element && target.closest(`[id="${this._id}"]`) !== null;
      },
      { capture: true }
    );
  }

  /** Whether it is listed, and the user has not closed it or chosen one of its actions. */
  get isUnseen(): boolean {
    return this._isListed && !this._isSeen;
  }

  show(
    message: string,
    type: Notification.TypeOptions,
    options: Notification.IOptions<null>
  ): void {
    if (this._isListed) {
      Notification.update({ id: this._id, message, type, ...options });
    } else {
      this._id = Notification.emit(message, type, options);
    }
    this._isSeen = false;
  }

  private get _isListed(): boolean {
    return Notification.manager.has(this._id);
  }

  private _id = '';
  private _isSeen = false;
}
