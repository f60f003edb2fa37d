/** Gives the focus back to where it was when a context menu is left. */
import type { JupyterFrontEnd } from '@jupyterlab/application';

/** JupyterLab's menus take the focus, and leave it with the page's body. */
export function keepFocus(app: Pick<JupyterFrontEnd, 'contextMenu'>, node: HTMLElement): void {
  let before: HTMLElement | null = null;
  node.addEventListener(
    'contextmenu',
    ({ target }) => {
      const { activeElement } = document;
      const list = target instanceof Element ? target.closest<HTMLElement>('.det-list') : null;
      before =
        activeElement instanceof HTMLElement && node.contains(activeElement) ? activeElement : list;
    },
    { capture: true }
  );
  app.contextMenu.menu.aboutToClose.connect(() => {
    before?.focus({ preventScroll: true });
    before = null;
  });
}
