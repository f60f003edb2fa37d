/**
 * Stand-ins of JupyterLab's packages: the real ones draw with web components, which need a browser.
 * The journeys in tests/lab use the real ones.
 */
import { Token } from '@lumino/coreutils';
import { vi } from 'vitest';

vi.mock('@jupyterlab/statusbar', () => ({ IStatusBar: new Token('statusbar') }));
vi.mock('@jupyterlab/launcher', () => ({ ILauncher: new Token('launcher') }));
vi.mock('@jupyterlab/notebook', () => ({ INotebookTracker: new Token('notebooks') }));
vi.mock('@jupyterlab/ui-components', () => {
  class LabIcon {
    constructor(options: { name: string; svgstr: string }) {
      this.name = options.name;
      this.svgstr = options.svgstr;
    }
    readonly name: string;
    readonly svgstr: string;
  }
  return {
    IFormRendererRegistry: new Token('forms'),
    LabIcon,
    settingsIcon: new LabIcon({ name: 'settings', svgstr: '' })
  };
});
/** What is listed as JupyterLab's manager does it; `emit` and `update` note what was shown. */
const listed = vi.hoisted(() => new Set<string>());
vi.mock('@jupyterlab/apputils', () => ({
  ICommandPalette: new Token('palette'),
  Dialog: {
    cancelButton: (options: object) => ({ accept: false, ...options }),
    warnButton: (options: object) => ({ accept: true, ...options })
  },
  Clipboard: { copyToSystem: vi.fn() },
  InputDialog: { getText: vi.fn(), getItem: vi.fn() },
  Notification: {
    dismiss: vi.fn((id: string) => listed.delete(id)),
    emit: vi.fn(() => {
      const id = `notification-${Math.random()}`;
      listed.add(id);
      return id;
    }),
    manager: { has: (id: string) => listed.has(id) },
    error: vi.fn(),
    success: vi.fn(),
    update: vi.fn()
  },
  showDialog: vi.fn()
}));
