/** Notifications of the desktop, by the browser. They work while a page is open, also in the background. */
import type { ITrans } from '../../model/trans.js';

export interface IDesktopNote {
  text: string;
  isFailure: boolean;
  onClick: () => void;
}

/** Whether the browser lets this page notify: it needs https, or an address on localhost. */
export function permission(): NotificationPermission | 'unavailable' {
  return 'Notification' in globalThis ? Notification.permission : 'unavailable';
}

/** Ask the user; browsers require that a click leads here. */
export async function askPermission(): Promise<NotificationPermission | 'unavailable'> {
  return 'Notification' in globalThis ? Notification.requestPermission() : 'unavailable';
}

/** Show a notification, unless the user looks at the page: what is on it suffices then. */
export function notifyDesktop(note: IDesktopNote, trans: ITrans): void {
  if (permission() !== 'granted' || document.hasFocus()) {
    return;
  }
  const { text, isFailure } = note;
  const title = isFailure ? trans.__('Experiment failed') : trans.__('Experiments');
  // With the same tag, the browser replaces the notification, also that of another tab.
  const tag = `det-jupyter:${isFailure ? 'failures' : 'others'}`;
  const options = { body: text, tag, renotify: true, requireInteraction: isFailure };
  const shown = new Notification(title, options);
  shown.onclick = () => {
    window.focus();
    note.onClick();
    shown.close();
  };
}
